package vnc

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func installed(programs ...string) func(string) (string, error) {
	return func(name string) (string, error) {
		for _, program := range programs {
			if program == name {
				return "/usr/bin/" + name, nil
			}
		}
		return "", errors.New("not found")
	}
}

func TestTheFirstViewerThatIsInstalledIsTaken(t *testing.T) {
	for name, c := range map[string]struct {
		programs []string
		command  []string
	}{
		"remote-viewer is preferred":   {[]string{"vncviewer", "remote-viewer"}, []string{"/usr/bin/remote-viewer", "vnc://127.0.0.1:5901"}},
		"TigerVNC under Debian's name": {[]string{"vncviewer", "xtigervncviewer"}, []string{"/usr/bin/xtigervncviewer", "127.0.0.1::5901"}},
		"any vncviewer":                {[]string{"vncviewer"}, []string{"/usr/bin/vncviewer", "127.0.0.1::5901"}},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := find("linux", installed(c.programs...))
			if err != nil {
				t.Fatal(err)
			}
			if got := append([]string{v.program}, v.arguments("127.0.0.1", 5901)...); !reflect.DeepEqual(got, c.command) {
				t.Errorf("got %q, want %q", got, c.command)
			}
		})
	}
}

func TestWithoutAViewerTheUserIsToldWhatToDo(t *testing.T) {
	_, err := find("linux", installed())
	for _, part := range []string{"remote-viewer", "vncviewer", "--vnc-path", "--proxy-only"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v; want %s to be named", err, part)
		}
	}
}
