// Package version says which Drydock this is. The linker sets Version; every
// program and every answer that names a version reads it here.
package version

import "runtime"

// Version is Drydock's own version, set by the linker (-X) to what
// `git describe` says.
var Version = "devel"

// Platform is the platform that the program was built for, such as linux/amd64.
func Platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

// GoVersion is the Go release that built the program.
func GoVersion() string { return runtime.Version() }
