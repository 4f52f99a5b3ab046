// Package chaos holds the test of the promise that clients and relays keep
// together: nothing is lost, and nothing reaches an application twice, while
// connections are cut, stalled and swallowed, relays are killed and clients die.
package chaos
