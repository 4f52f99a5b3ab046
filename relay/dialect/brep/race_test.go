//go:build race

package brep

const raceDetector = true
