package ecma

import (
	"math"
	"strconv"
)

// appendNumber appends f as JSON.stringify writes it: Number::toString of ECMA-262,
// which agrees with Go on the shortest digits and not on where the exponent begins;
// null for an infinity.
func appendNumber(dst []byte, f float64) []byte {
	abs := math.Abs(f)
	switch {
	case math.IsInf(f, 0):
		return append(dst, "null"...)
	case f == 0: // also -0
		return append(dst, '0')
	case abs >= 1e-6 && abs < 1e21:
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	if n := len(dst); dst[n-4] == 'e' && dst[n-2] == '0' { // Go writes two digits at least: e-07
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}
