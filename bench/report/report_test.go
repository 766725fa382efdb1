package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFigureIsSummedUp(t *testing.T) {
	r := New(&bytes.Buffer{})
	r.Add("up.warm_s", "s", 4, 1)
	r.Add("up.warm_s", "s", 2, 3, 5)
	got := r.Metrics()["up.warm_s"]
	if want := (Metric{Median: 3, P95: 4.8, Unit: "s", N: 5}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestARunKeepsTheFiguresThatItDidNotTake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	write := func(machine string, name string, value float64) map[string]Metric {
		t.Helper()
		r := New(&bytes.Buffer{})
		r.Machine = Machine{CPU: machine, Load: value}
		r.Add(name, "s", value)
		if err := r.Write(path); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var f file
		if err := json.Unmarshal(data, &f); err != nil {
			t.Fatal(err)
		}
		return f.Metrics
	}
	write("one", "a", 1)
	if got := write("one", "b", 2); len(got) != 2 || got["a"].Median != 1 || got["b"].Median != 2 {
		t.Errorf("after two runs there is %+v", got)
	}
	if got := write("another", "b", 3); len(got) != 1 || got["b"].Median != 3 {
		t.Errorf("figures of another machine are mixed in: %+v", got)
	}
	if raw, err := os.ReadFile(filepath.Join(filepath.Dir(path), "results.raw.json")); err != nil || !strings.Contains(string(raw), `"b"`) {
		t.Errorf("raw samples: %s, %v", raw, err)
	}
}

func TestTheTableTellsWhichTargetsHold(t *testing.T) {
	var out bytes.Buffer
	r := New(&out)
	r.Add("api.writes_per_vmi_life", "writes", 11)
	r.Add("scale.rss_kib_per_vmi_5000", "KiB", 33)
	r.Add("up.warm_s", "s", 12)
	if err := r.Table(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<= 8 MISSED", "<= 40 holds"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}
