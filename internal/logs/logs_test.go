package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"drydock.dev/drydock/internal/contracts/logline"
	"drydock.dev/drydock/internal/logs/logstest"
)

var instance = &metav1.ObjectMeta{Namespace: "default", Name: "vm-1", UID: "0f0c"}

func lines(t *testing.T, out *bytes.Buffer) []map[string]any {
	t.Helper()
	var all []map[string]any
	for text := range strings.Lines(out.String()) {
		line := map[string]any{}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		all = append(all, line)
	}
	out.Reset()
	return all
}

func verbosity(t *testing.T, level string) {
	t.Helper()
	var global klog.Level
	if err := global.Set(level); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = global.Set("0") })
}

func TestAJSONLineSaysWhichVMIItIsAbout(t *testing.T) {
	var out bytes.Buffer
	log := newJSON(&out).WithName("driver").WithName("disks")
	VMI(log, instance).Info("plugged", "bytes", 7, "took", time.Second)
	line := lines(t, &out)[0]
	if got, want := fmt.Sprint(line["vmi"]), "map[name:vm-1 namespace:default uid:0f0c]"; got != want {
		t.Errorf("the VMI is %s, want %s", got, want)
	}
	for key, want := range map[string]any{"level": "INFO", "msg": "plugged", "logger": "driver.disks", "bytes": 7.0, "took": "1s"} {
		if line[key] != want {
			t.Errorf("%s is %v, want %v", key, line[key], want)
		}
	}
	if at, _ := line["caller"].(string); !strings.HasPrefix(at, "logs_test.go:") {
		t.Errorf("the caller is %q", at)
	}
	VM(log, instance).Error(errors.New("no space"), "can't be saved")
	line = lines(t, &out)[0]
	if line["level"] != "ERROR" || line["error"] != "no space" || line["vmi"] != nil || fmt.Sprint(line["vm"]) != "map[name:vm-1 namespace:default uid:0f0c]" {
		t.Errorf("%v", line)
	}
}

func TestOneKeyHasOneValueInALine(t *testing.T) {
	var out bytes.Buffer
	log := VMINamed(newJSON(&out), "default", "vm-1", "earlier")
	VMI(log, instance).Info("seen", "msg", "a second one", "odd")
	text := out.String()
	if strings.Count(text, `"vmi":`) != 1 || strings.Contains(text, "earlier") || strings.Count(text, `"msg":`) != 1 {
		t.Error(text)
	}
	if line := lines(t, &out)[0]; line["msg"] != "seen" || line["msg_"] != "a second one" || line["odd"] != "(MISSING)" {
		t.Errorf("%v", line)
	}
}

// A guest chooses some of the texts, and the reader of a log may be a terminal.
func TestHostileTextsStayOneLineOfJSON(t *testing.T) {
	var out bytes.Buffer
	newJSON(&out).Info("line\nbreak", "name", "\x1b[2J\xff\x00", "none", (*metav1.Time)(nil))
	text := strings.TrimSuffix(out.String(), "\n")
	if strings.ContainsAny(text, "\n\x1b\x00") || !utf8.ValidString(text) {
		t.Errorf("%q", text)
	}
	if line := lines(t, &out)[0]; line["msg"] != "line\nbreak" {
		t.Errorf("%v", line)
	}
}

func TestTheLevelIsKlogsVerbosity(t *testing.T) {
	var out bytes.Buffer
	log := newJSON(&out)
	log.V(1).Info("unseen")
	verbosity(t, "1")
	log.V(1).Info("seen")
	log.V(2).Info("unseen")
	got := lines(t, &out)
	if len(got) != 1 || got[0]["msg"] != "seen" || got[0]["level"] != "DEBUG" || got[0]["v"] != 1.0 {
		t.Errorf("%v", got)
	}
}

func TestAVMIThatIsLookedUpIsLookedUpForALineOnly(t *testing.T) {
	looked := 0
	find := func() logline.Object {
		looked++
		return logline.Object{Namespace: "default", Name: "vm-1", UID: "0f0c"}
	}
	var out bytes.Buffer
	log := Found(newJSON(&out), logline.VMI, find).WithValues("step", 1)
	log.V(9).Info("unseen")
	if looked != 0 {
		t.Errorf("it was looked up %d times without a line", looked)
	}
	log.Info("seen")
	if got := fmt.Sprint(lines(t, &out)[0]["vmi"]); got != "map[name:vm-1 namespace:default uid:0f0c]" {
		t.Error(got)
	}
}

// installed is the body of the process of TestEveryLineOfAProcessHasItsFormat.
func installed(format logline.Format) {
	Install(format)
	VMI(ctrl.Log.WithName("loop"), instance).Info("from Drydock")
	VMI(logr.FromContextOrDiscard(ctrl.LoggerInto(context.Background(), ctrl.Log)), instance).Error(errors.New("cause"), "from a loop")
	klog.InfoS("from client-go", "vmi", "x")
	klog.Background().Info("from a client")
	if format == logline.JSON {
		slog.Info("from a library")
		log.Print("from the standard library")
	}
}

func TestEveryLineOfAProcessHasItsFormat(t *testing.T) {
	if format := os.Getenv("DRYDOCK_TEST_LOG_FORMAT"); format != "" {
		installed(logline.Format(format))
		klog.Flush()
		os.Exit(0)
	}
	text, json := ran(t, logline.Text), ran(t, logline.JSON)
	for _, want := range []string{`"from Drydock" logger="loop" vmi="default/vm-1/0f0c"`, `"from a loop" err="cause" vmi="default/vm-1/0f0c"`} {
		if !strings.Contains(text, want) {
			t.Errorf("as text:\n%s\nwant %s", text, want)
		}
	}
	got := lines(t, bytes.NewBufferString(json))
	var said []string
	for _, line := range got {
		said = append(said, fmt.Sprint(line["msg"]))
	}
	if want := "from Drydock, from a loop, from client-go, from a client, from a library, from the standard library"; strings.Join(said, ", ") != want {
		t.Errorf("as JSON the lines are %s", strings.Join(said, ", "))
	}
}

func ran(t *testing.T, format logline.Format) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestEveryLineOfAProcessHasItsFormat$")
	cmd.Env = append(os.Environ(), "DRYDOCK_TEST_LOG_FORMAT="+string(format))
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("as %s: %v\n%s", format, err, out.String())
	}
	return out.String()
}

func TestLinesThatNameNoVMIAreFound(t *testing.T) {
	var faults []string
	log := logstest.Logger(func(l logstest.Line) { faults = append(faults, logstest.Fault(l, logline.VMI)) })
	log.Info("nobody")
	log.WithValues("vmi", "default/vm-1").Info("a text")
	VMINamed(log, "default", "vm-1", "").Info("no UID")
	VM(log, instance).Error(nil, "a VM")
	VMI(log.WithName("x").V(4), instance).Info("right")
	Found(log, logline.VMI, func() logline.Object { return logline.Object{Namespace: "a", Name: "b", UID: "c"} }).Info("right")
	for i, want := range []string{"it has no vmi", "it has no vmi", "must have namespace, name and UID", "it has no vmi", "", ""} {
		if !strings.Contains(faults[i], want) || want == "" && faults[i] != "" {
			t.Errorf("line %d: %q, want %q", i, faults[i], want)
		}
	}
}
