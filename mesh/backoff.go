package mesh

import (
	"math/rand/v2"
	"time"
)

const (
	backoffLeast = time.Second
	backoffMost  = 2 * time.Minute
)

// backoff returns how long to wait after so many failures in a row: twice as long
// each time, from a second to two minutes, less up to a half, so that those who lost
// one another do not come back all at once.
func backoff(failures int) time.Duration {
	d := backoffMost
	if failures < 8 {
		d = min(backoffLeast<<max(failures-1, 0), backoffMost)
	}
	return d/2 + rand.N(d/2+1)
}
