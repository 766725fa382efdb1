package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"drydock.dev/drydock/internal/contracts/layout"
)

// errNoQEMU means that no QEMU runs in this pod.
var errNoQEMU = errors.New("no QEMU runs here")

// argumentsMain prints the arguments of this pod's QEMU, each as a line of JSON, for a user who may exec in the pod.
func argumentsMain(out io.Writer, proc string) (int, error) {
	_, args, err := findQEMU(proc)
	if err != nil {
		return exitFailed, err
	}
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	for _, arg := range args {
		if err := lines.Encode(arg); err != nil {
			return exitFailed, fmt.Errorf("printing the arguments: %w", err)
		}
	}
	return exitOK, nil
}

// findQEMU returns the folder of QEMU's process in /proc, and QEMU's arguments.
func findQEMU(proc string) (folder string, args []string, err error) {
	files, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "cmdline"))
	if err != nil {
		return "", nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
		if filepath.Base(args[0]) == filepath.Base(layout.QEMUBinary) {
			return filepath.Dir(file), args[1:], nil
		}
	}
	return "", nil, errNoQEMU
}
