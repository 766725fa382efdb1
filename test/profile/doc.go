// Package main tells where the CPU time of a run of the tests goes: which part of the
// system used it, which tests, and what a guest costs.
//
//	profile watch FOLDER     looks at every process of the machine once a second, until SIGTERM
//	profile report FOLDER    adds up what was seen and what `go test -json` wrote there, and prints it
//
// It reads /proc of this machine and changes nothing. It judges nothing: no test fails
// because of what it prints.
package main
