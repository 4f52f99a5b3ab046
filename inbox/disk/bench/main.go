// Bench measures the store on disk beside a bare Pebble loop and SQLite, in one
// run on one disk. It is a module of its own, so that nobody who embeds the store
// links SQLite.
//
//	go run . -dir /var/tmp
//
// The contenders take turns, and what is printed is the median of the turns and
// of the ratios within a turn.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"time"
)

var (
	dir     = flag.String("dir", "", "directory on the disk to measure; default that for temporary files")
	rounds  = flag.Int("rounds", 5, "turns")
	each    = flag.Duration("each", 2*time.Second, "time of a contender in a turn")
	entries = flag.Int("purge", 1_000_000, "expired entries to purge, 0 to leave that out")
	backlog = flag.Int("backlog", 100_000, "entries to drain, 0 to leave that out")
)

func main() {
	flag.Parse()
	for _, writers := range []int{64, 1} {
		fmt.Printf("%d writers of 1 KiB, durable puts/s\n", writers)
		compare(writers)
	}
	if *backlog > 0 {
		drain(*backlog)
	}
	if *entries > 0 {
		purge(*entries)
	}
}

// compare has the contenders take turns.
func compare(writers int) {
	contenders := []struct {
		name string
		open func(dir string) contender
	}{{"bare Pebble", openPebble}, {"inbox/disk", openDisk}, {"SQLite", openSQLite}}
	rates := make([][]float64, len(contenders))
	for range *rounds {
		for i, c := range contenders {
			d := tempDir()
			s := c.open(d)
			rates[i] = append(rates[i], load(s, writers))
			s.close()
			check(os.RemoveAll(d))
		}
	}
	for i, c := range contenders {
		ratios := make([]float64, len(rates[i]))
		for r := range ratios {
			ratios[r] = rates[i][r] / rates[0][r]
		}
		fmt.Printf("  %-12s %8.0f  %.2f of bare Pebble\n", c.name, median(rates[i]), median(ratios))
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

func tempDir() string {
	d, err := os.MkdirTemp(*dir, "sotto-bench-")
	check(err)
	return d
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
