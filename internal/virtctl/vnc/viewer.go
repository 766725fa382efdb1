package vnc

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
)

type viewer struct {
	program   string
	arguments func(host string, port int) []string
}

// url is the form of remote-viewer and macOS, doubleColon that of the vncviewer family, for which a single
// colon means a display number from port 5900 on.
func url(host string, port int) []string {
	return []string{"vnc://" + net.JoinHostPort(host, strconv.Itoa(port))}
}

func doubleColon(host string, port int) []string {
	return []string{host + "::" + strconv.Itoa(port)}
}

// viewers are in order of preference. remote-viewer is first because it is made for virtual machines: it sends
// Ctrl+Alt+Del and resizes with the guest.
var viewers = map[string][]viewer{
	"linux": {
		{"remote-viewer", url},
		{"xtigervncviewer", doubleColon},
		{"vncviewer", doubleColon},
		{"vinagre", url},
	},
	"darwin": {
		{"remote-viewer", url},
		{"/Applications/TigerVNC Viewer.app/Contents/MacOS/TigerVNC Viewer", doubleColon},
		{"/Applications/VNC Viewer.app/Contents/MacOS/vncviewer", doubleColon},
		{"vncviewer", doubleColon},
		{"open", func(host string, port int) []string { return append([]string{"-W"}, url(host, port)...) }},
	},
	"windows": {
		{"remote-viewer.exe", url},
		{"vncviewer.exe", doubleColon},
	},
}

func find(system string, lookPath func(string) (string, error)) (viewer, error) {
	var tried []string
	for _, candidate := range viewers[system] {
		if path, err := lookPath(candidate.program); err == nil {
			return viewer{path, candidate.arguments}, nil
		}
		tried = append(tried, filepath.Base(candidate.program))
	}
	return viewer{}, fmt.Errorf("finding a VNC viewer: none of %s is installed: install one, name one with --vnc-path, "+
		"or use --proxy-only and connect a viewer of your own", strings.Join(tried, ", "))
}
