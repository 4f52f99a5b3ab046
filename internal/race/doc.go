// Package race tells tests whether the race detector is on, under which they do less: it
// makes memory and time ten times as dear.
package race
