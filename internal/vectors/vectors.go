// Package vectors reads the test vectors of the package that is being tested.
package vectors

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Cases returns the cases in a file of testdata, at least one.
func Cases[Case any](t testing.TB, file string) []Case {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ Cases []Case }
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if len(v.Cases) == 0 {
		t.Fatalf("%s has no cases", file)
	}
	return v.Cases
}

// Unhex returns the bytes that s has in hex.
func Unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
