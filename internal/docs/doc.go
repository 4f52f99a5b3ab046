// Package docs holds the test of README.md and docs/: their Go code stands in
// compiled programs that are run, and their links lead somewhere. It has no code
// of its own.
package docs
