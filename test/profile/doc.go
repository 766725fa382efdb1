// Package main reports the CPU time of a test run by parts of the system and by tests, and the cost of a guest.
//
//	profile watch FOLDER     observes every process of the machine once a second, until SIGTERM
//	profile report FOLDER    prints the sums of the observations and of the output of `go test -json` there
//
// It must change nothing, and no test may fail because of its output.
package main
