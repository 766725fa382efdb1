// Package version describes this build of Drydock. The linker sets Version, Commit and Date to the output of hack/version.
package version

import (
	"runtime"
	"strings"
)

// Set by the linker (-X).
var (
	// Version is semantic with a leading v: clients parse it.
	Version = "v0.0.0-devel"
	// Commit is empty without a git checkout, and so is Date, the commit's time in RFC 3339: builds of one commit are
	// equal.
	Commit = ""
	Date   = ""
)

// Info has the fields that KubeVirt's clients read.
type Info struct {
	GitVersion   string `json:"gitVersion"`
	GitCommit    string `json:"gitCommit"`
	GitTreeState string `json:"gitTreeState"`
	BuildDate    string `json:"buildDate"`
	GoVersion    string `json:"goVersion"`
	Compiler     string `json:"compiler"`
	Platform     string `json:"platform"`
}

// Get returns this build.
func Get() Info {
	info := Info{
		GitVersion:   Version,
		GitCommit:    Commit,
		GitTreeState: "clean",
		BuildDate:    Date,
		GoVersion:    runtime.Version(),
		Compiler:     runtime.Compiler,
		Platform:     runtime.GOOS + "/" + runtime.GOARCH,
	}
	switch {
	case Commit == "":
		info.GitTreeState = "unknown"
	case strings.HasSuffix(Version, "+dirty"):
		info.GitTreeState = "dirty"
	}
	return info
}
