//go:build !race

package brep

const raceDetector = false
