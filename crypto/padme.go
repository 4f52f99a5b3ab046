package crypto

import "math/bits"

// padme returns the smallest Padmé length that is n or more. A length of E bits
// keeps as many leading bits as E takes to write, and is zero below: so a length
// tells at most O(log log n) bits, and padding adds at most 12 %. (Nikitin et
// al., "Reducing Metadata Leakage from Encrypted Files and Communication with
// PURBs", 2019.)
func padme(n int) int {
	if n < 2 {
		return n
	}
	exponent := bits.Len(uint(n)) - 1
	kept := bits.Len(uint(exponent))
	mask := 1<<(exponent-kept) - 1
	return (n + mask) &^ mask
}
