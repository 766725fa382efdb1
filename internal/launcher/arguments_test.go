package launcher

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"drydock.dev/drydock/internal/contracts/layout"
)

func processes(t *testing.T, commands map[string]string) string {
	t.Helper()
	proc := t.TempDir()
	for pid, command := range commands {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "cmdline"), []byte(command), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return proc
}

func TestTheArgumentsOfQEMUAreALineEach(t *testing.T) {
	proc := processes(t, map[string]string{
		"1": layout.LauncherBinary + "\x00", "7": "/usr/bin/swtpm\x00socket\x00", "9": layout.QEMUBinary + "\x00-name\x00guest=a\nb\x00-device\x00{\"id\":\"<\"}\x00", "x": "x",
	})
	var out bytes.Buffer
	if code, err := argumentsMain(&out, proc); code != exitOK || err != nil {
		t.Errorf("%d, %v", code, err)
	}
	if want := "\"-name\"\n\"guest=a\\nb\"\n\"-device\"\n\"{\\\"id\\\":\\\"<\\\"}\"\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestWithoutQEMUThereAreNoArguments(t *testing.T) {
	var out bytes.Buffer
	code, err := argumentsMain(&out, processes(t, map[string]string{"1": layout.LauncherBinary + "\x00", "2": ""}))
	if code != exitFailed || !errors.Is(err, errNoQEMU) || out.Len() > 0 {
		t.Errorf("%d, %v, %q", code, err, out.String())
	}
}
