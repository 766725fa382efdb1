package diagnose

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/internal/virtctl/client"
	"drydock.dev/drydock/internal/virtctl/diagnose/archive"
)

const secret = "Tr0ub4dor-und-3"

// diagnosed makes a diagnosis of an API server that answers by path, and with empty lists otherwise. It returns the page and
// all files as one text.
func diagnosed(t *testing.T, vm, only string, answers map[string]string) (string, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, known := answers[r.URL.Path+"?"+r.URL.Query().Get("continue")]
		switch {
		case !known:
			fmt.Fprint(w, `{"metadata": {}, "items": []}`)
		case strings.Contains(answer, `"code"`):
			w.WriteHeader(http.StatusGone)
			fallthrough
		default:
			fmt.Fprint(w, answer)
		}
	}))
	t.Cleanup(server.Close)
	from, err := client.New(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "out")
	out, err := archive.New(folder, false, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c := newCollector(from, out, vm, "lab")
	c.only = only
	o := options{vm: vm}
	err = o.collect(t.Context(), c, &page{now: time.Now(), again: command("virtctl", pflag.NewFlagSet("", pflag.ContinueOnError))})
	var all strings.Builder
	walked := filepath.Walk(folder, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(&all, "== %s\n%s\n", path, text)
		return err
	})
	if walked != nil {
		t.Fatal(walked)
	}
	return all.String(), err
}

const (
	expired    = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old \u001b]0;pwn\u0007"}`
	controller = `{"items":[{"metadata":{"name":"c","namespace":"kubevirt","uid":"2","labels":{"kubevirt.io":"virt-controller"}},
		"status":{"phase":"Running","containerStatuses":[{"name":"virt-controller","state":{"running":{}}}]}}]}`
)

func vm(name, namespace, uid, rest string) string {
	return fmt.Sprintf(`{"kind":"VirtualMachine","metadata":{"name":%q,"namespace":%q,"uid":%q}%s}`, name, namespace, uid, rest)
}

func withPassword(name, namespace, uid string) string {
	return vm(name, namespace, uid, `,"spec":{"template":{"spec":{"volumes":[{"cloudInitNoCloud":{"userData":"password: `+secret+`"}}]}}}`)
}

// TestTextsAreWithheldIfAListOfMachinesEndsEarly has a tenant whose VM is on the page that is not answered.
func TestTextsAreWithheldIfAListOfMachinesEndsEarly(t *testing.T) {
	all, err := diagnosed(t, "", "", map[string]string{
		"/apis/kubevirt.io/v1/virtualmachines?":   `{"metadata":{"continue":"x"},"items":[` + vm("a", "lab", "1", `,"status":{"conditions":[{"type":"Failure","message":"quotes `+secret+`"}]}`) + `]}`,
		"/apis/kubevirt.io/v1/virtualmachines?x":  expired,
		"/api/v1/namespaces/kubevirt/pods?":       controller,
		"/api/v1/namespaces/kubevirt/pods/c/log?": `I1 "bad" vmi="else/b/uid" err="` + secret + "\"\nI1 \"leads\"\n",
	})
	if err != nil || strings.Contains(all, secret) || !strings.Contains(all, `"leads"`) || strings.ContainsAny(all, "\x1b\a") ||
		!strings.Contains(all, "messages and logs of other namespaces: not all their virtualmachines.kubevirt.io could be read") {
		t.Errorf("%v\n%s", err, all)
	}
}

// TestOneMachineIsNotToldByAnother names a VM of a namespace in which another one has a secret.
func TestOneMachineIsNotToldByAnother(t *testing.T) {
	all, err := diagnosed(t, "web", "lab", map[string]string{
		"/apis/kubevirt.io/v1/namespaces/lab/virtualmachines?": `{"items":[` + vm("web", "lab", "1", "") + "," + withPassword("other", "lab", "2") + `]}`,
		"/api/v1/namespaces/kubevirt/pods?":                    controller,
		"/api/v1/namespaces/kubevirt/pods/c/log?":              `I1 "one" vmi="lab/web/uid" err="` + secret + "\"\nI1 \"two\" vmi=\"lab/other/uid\"\nI1 \"three\" vmi=\"else/web/uid\"\nI1 \"four\"\n",
	})
	if err != nil || strings.Contains(all, secret) || !strings.Contains(all, `"one"`) || !strings.Contains(all, `"four"`) ||
		strings.Contains(all, `"two"`) || strings.Contains(all, `"three"`) || strings.Contains(all, "name: other") {
		t.Errorf("%v\n%s", err, all)
	}
}

func TestWhatIsNotCollectedIsBoundedAndRedacted(t *testing.T) {
	c := newCollector(nil, nil, "", "lab")
	c.rules.Keep("virtualmachines.kubevirt.io", read(t, withPassword("a", "lab", "1")).Object)
	c.miss("the arguments of QEMU: %s", strings.Repeat("password: "+secret+" \x1b[2J", 50_000))
	for i := range 2 * maxMissing {
		c.miss("number %d", i)
	}
	got := c.sentences()
	if len(got) != maxMissing+1 || len([]rune(got[0])) > maxSentence+2 || strings.Contains(strings.Join(got, ""), secret) || strings.Contains(got[0], "\x1b") ||
		got[maxMissing] != "101 more" {
		t.Errorf("%d sentences, the first %q, the last %q", len(got), got[0], got[len(got)-1])
	}
}

// TestWhatIsThereIsWrittenWhenTimeIsOver ends the time before the first list of machines.
func TestWhatIsThereIsWrittenWhenTimeIsOver(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/nodes"):
			fmt.Fprint(w, `{"items": [{"metadata": {"name": "node1", "uid": "n"}}]}`)
		case strings.HasSuffix(r.URL.Path, "/virtualmachines"):
			stop(errLate)
			<-r.Context().Done()
		default:
			fmt.Fprint(w, `{"metadata": {}, "items": []}`)
		}
	}))
	t.Cleanup(server.Close)
	from, err := client.New(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "out")
	out, err := archive.New(folder, false, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := (&options{}).collect(ctx, newCollector(from, out, "", "lab"), &page{}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "diagnosis.txt"))
	_, missing := os.Stat(filepath.Join(folder, "cluster-scoped-resources", "core", "nodes", "node1.yaml"))
	if err := errors.Join(err, missing); err != nil || !strings.Contains(string(text), "all that could not be read within 10 minutes") {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestPodsWithLogs has more pods than are read, the worst ones last.
func TestPodsWithLogs(t *testing.T) {
	c := newCollector(nil, nil, "web", "lab")
	c.nodes["node1"] = true
	note := func(name, namespace, app, container, node string, ready bool) {
		c.notePod(read(t, fmt.Sprintf("metadata: {name: %s, namespace: %s, labels: {kubevirt.io: %s}}\nspec: {nodeName: %s}\n"+
			"status: {phase: Running, containerStatuses: [{name: %s, ready: %t, state: {running: {}}}]}", name, namespace, app, node, container, ready)))
	}
	for i := range maxComponents {
		note(fmt.Sprint("virt-handler-", i), "kubevirt", "virt-handler", "virt-handler", "other", true)
	}
	note("near", "kubevirt", "virt-handler", "virt-handler", "node1", true)
	note("ill", "kubevirt", "virt-handler", "virt-handler", "other", false)
	for i := range maxPods + 1 {
		note(fmt.Sprint("guest-", i), "lab", "virt-launcher", "compute", "node1", true)
	}
	got := c.choosePods()
	if len(got) != maxComponents+maxPods+1 || got[0].pod.GetName() != "ill" || got[1].pod.GetName() != "near" || len(c.missing) != 1 {
		t.Errorf("%d pods, the first %s and %s, not there %q", len(got), got[0].pod.GetName(), got[1].pod.GetName(), c.missing)
	}
	c.scope.vm = ""
	if got := c.choosePods(); len(got) != maxComponents+maxPods {
		t.Errorf("of all machines, %d pods", len(got))
	}
}
