package downwardmetrics

import (
	"flag"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/launcher/downwardmetrics/metricstest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// all has every figure.
func all() Figures {
	return Figures{
		HostName: "node01", QEMU: Version{7, 2, 19}, VM: &VM{CPUTime: 12345, VCPUs: 4, Memory: 2 << 20},
		Processors: 2, CPUTime: 7_000_007, Memory: &Memory{Free: 1, FreeVirtual: 2, Used: 3, UsedVirtual: 4},
		Paging: &Paging{In: 5, Out: 6}, Time: time.Unix(1_800_000_000, 0),
	}
}

// TestGolden compares the document as exact text: guests' tools read it.
func TestGolden(t *testing.T) {
	everything := all()
	for name, f := range map[string]*Figures{
		"everything": &everything,
		"unknown":    {HostName: "<a> & b\nc", Time: time.Unix(0, 0)},
	} {
		file, got := "testdata/"+name+".xml", f.Document()
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || string(want) != string(got) {
			t.Errorf("%s, %v: the document is\n%s\nwant\n%s", name, err, got, want)
		}
	}
}

// A guest must get these figures and no others (decision 603).
func TestWhatAGuestIsTold(t *testing.T) {
	f := all()
	read, err := metricstest.Document(f.Document())
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]string{}
	for key, m := range read {
		types[key] = m.Type
	}
	if want := metricstest.Names(); !maps.Equal(types, want) {
		t.Errorf("the figures are %v, want %v", types, want)
	}
	for key, want := range map[string]metricstest.Metric{
		"host TotalCPUTime": {Unit: "s", Value: "70000.07"}, "vm TotalCPUTime": {Unit: "s", Value: "123.45"},
		"vm ResourceMemoryLimit": {Unit: "KiB", Value: "2097152"}, "host VirtProductInfo": {Value: "qemu-7.2.19"},
	} {
		if got := read[key]; got.Unit != want.Unit || got.Value != want.Value {
			t.Errorf("%s is %+v, want %+v", key, got, want)
		}
	}
}

// Readers wait for an empty line, or for the answer's last bytes: both must occur at its end only.
func TestAnAnswerEndsWithItsEmptyLine(t *testing.T) {
	f := all()
	f.HostName = "a\n\nb"
	answer := string(Answer(f.Document()))
	if strings.Index(answer, "\n\n") != len(answer)-2 {
		t.Errorf("the answer is %q", answer)
	}
	if document := f.Document(); strings.Contains(string(document), "\n\n") {
		t.Error("the answer is written into its document")
	}
}
