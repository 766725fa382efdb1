package launcher

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/contracts/logline"
)

var itsVMI = logline.Object{Namespace: "default", Name: "vm-1", UID: "0f0c"}

func TestEachLineOfTheLauncherNamesItsVMI(t *testing.T) {
	var out bytes.Buffer
	config := Config{Log: &out, VMI: itsVMI}
	config.log().printf("received %s", "SIGTERM")
	if got, want := out.String(), ` virt-launcher: received SIGTERM vmi="default/vm-1/0f0c"`+"\n"; !strings.HasSuffix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	out.Reset()
	config.LogFormat = logline.JSON
	config.log().printf("received %s\n%s", "SIGTERM", "\x1b[2J")
	var line jsonLine
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || bytes.Count(out.Bytes(), []byte("\n")) != 1 {
		t.Fatalf("%q: %v", out.String(), err)
	}
	if line.Level != "INFO" || line.Logger != "virt-launcher" || line.Message != "received SIGTERM\n\x1b[2J" || line.VMI == nil || *line.VMI != itsVMI {
		t.Errorf("%+v", line)
	}
}

func TestTheLinesOfQEMUAreLinesOfJSON(t *testing.T) {
	var out bytes.Buffer
	config := Config{Log: &out, VMI: itsVMI, LogFormat: logline.JSON}
	child := config.log().of("qemu")
	for _, part := range []string{"a lin", "e\n\nanother\n", strings.Repeat("x", 2*maxChildLine+1), "y\nunended"} {
		if n, err := child.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("%d bytes of %d were written: %v", n, len(part), err)
		}
	}
	var got []string
	for text := range bytes.Lines(out.Bytes()) {
		var line jsonLine
		if err := json.Unmarshal(text, &line); err != nil || line.Logger != "qemu" || line.VMI == nil || *line.VMI != itsVMI {
			t.Errorf("%s: %v", text, err)
		}
		got = append(got, line.Message)
	}
	long := strings.Repeat("x", maxChildLine)
	if want := []string{"a line", "another", long, long, "xy"}; strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%d lines: %.60q", len(got), got)
	}
	out.Reset()
	config.LogFormat = logline.Text
	if _, err := config.log().of("qemu").Write([]byte("as it is")); err != nil || out.String() != "as it is" {
		t.Errorf("as text: %q, %v", out.String(), err)
	}
}
