package machine

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/qmp"
)

func TestHandoverIsReadFromMarkers(t *testing.T) {
	for name, c := range map[string]struct {
		objects []string
		want    Handover
	}{
		"a guest that was started here":     {objects: []string{"pc.ram", WaitMarker, PauseMarker}},
		"a guest that has not arrived":      {[]string{IncomingMarker("a")}, Handover{Incoming: "a"}},
		"a guest that has arrived":          {[]string{IncomingMarker("a"), RanMarker("a")}, Handover{Incoming: "a", Ran: true}},
		"another migration's guest ran":     {[]string{IncomingMarker("a"), RanMarker("b")}, Handover{Incoming: "a"}},
		"a guest that is not to come":       {[]string{IncomingMarker("a"), DoomedMarker("a")}, Handover{Incoming: "a", Doomed: true}},
		"a guest that goes":                 {[]string{BegunMarker("b")}, Handover{Begun: "b"}},
		"a guest that is stopped for it":    {[]string{BegunMarker("b"), PausedMarker("b")}, Handover{Begun: "b", Paused: true}},
		"a guest that has left":             {[]string{BegunMarker("b"), LeftMarker("b")}, Handover{Begun: "b", Left: true}},
		"it has left with an earlier one":   {[]string{BegunMarker("b"), LeftMarker("a")}, Handover{Begun: "b"}},
		"it was stopped for an earlier one": {[]string{BegunMarker("b"), PausedMarker("a")}, Handover{Begun: "b"}},
		"a guest that came and goes on": {
			[]string{IncomingMarker("a"), RanMarker("a"), BegunMarker("b")}, Handover{Incoming: "a", Ran: true, Begun: "b"},
		},
	} {
		objects := map[string]bool{}
		for _, o := range c.objects {
			objects[o] = true
		}
		if diff := cmp.Diff(c.want, ReadHandover(objects)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestMarkersOfEarlierMigrationsAreOutdated(t *testing.T) {
	objects := map[string]bool{
		IncomingMarker("a"): true, RanMarker("a"): true, PauseMarker: true,
		BegunMarker("b"): true, BegunMarker("c"): true, PausedMarker("b"): true, PausedMarker("c"): true,
		LeftMarker("b"): true, LeftMarker("c"): true,
	}
	got := Outdated(objects, "c")
	slices.Sort(got)
	if diff := cmp.Diff([]string{LeftMarker("b"), BegunMarker("b"), PausedMarker("b")}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAGuestArrivesUntilItHasRun(t *testing.T) {
	for name, c := range map[string]struct {
		h    Handover
		want bool
	}{
		"it was started here":             {Handover{}, false},
		"QEMU waits for it":               {Handover{Incoming: "a"}, true},
		"it ran":                          {Handover{Incoming: "a", Ran: true}, false},
		"it goes, and is awaited nowhere": {Handover{Begun: "b"}, false},
	} {
		if got := c.h.Arriving(); got != c.want {
			t.Errorf("%s: it arrives: %v, want %v", name, got, c.want)
		}
	}
}

// TestATargetIsTheSourcesMachine: the arguments must be equal to the byte, except those of the start.
func TestATargetIsTheSourcesMachine(t *testing.T) {
	for _, file := range vmiFiles(t) {
		vmi := readVMI(t, file)
		source, err := Build(prepared(vmi))
		if err != nil {
			t.Fatal(err)
		}
		in := prepared(vmi)
		in.Incoming = "4d5e"
		target, err := Build(in)
		if err != nil {
			t.Fatal(err)
		}
		args := target.Args()
		for _, own := range [][]string{
			{"-S"}, {"-incoming", "defer"}, {"-object", `{"id":"incoming-4d5e","qom-type":"rng-builtin"}`},
		} {
			at := slices.Index(args, own[0])
			for at >= 0 && !slices.Equal(args[at:min(len(args), at+len(own))], own) {
				next := slices.Index(args[at+1:], own[0])
				if at += next + 1; next < 0 {
					at = -1
				}
			}
			if at < 0 {
				t.Fatalf("%s: the target has no %v: %v", file, own, args)
			}
			args = slices.Delete(args, at, at+len(own))
		}
		if diff := cmp.Diff(withoutMarkers(source), args); diff != "" {
			t.Errorf("%s (-source +target):\n%s", file, diff)
		}
	}
}

// The newest type of the target's QEMU may be another one than the source's.
func TestATargetHasTheMachineTypeThatTheSourceRunsAs(t *testing.T) {
	for name, c := range map[string]struct {
		incoming types.UID
		running  string
		want     string
	}{
		"a new start":                      {"", "pc-q35-7.2", "type=q35,"},
		"a target":                         {"4d5e", "pc-q35-7.2", "type=pc-q35-7.2,"},
		"the source has not told its type": {"4d5e", "", "type=q35,"},
		"it has another kind of machine":   {"4d5e", "microvm", "type=q35,"},
	} {
		vmi := readVMI(t, "testdata/smallest.yaml")
		vmi.Spec.Domain.Machine = &v1.Machine{Type: "q35"}
		if c.running != "" {
			vmi.Status.Machine = &v1.Machine{Type: c.running}
		}
		in := prepared(vmi)
		in.Incoming = c.incoming
		m, err := Build(in)
		if err != nil {
			t.Fatal(err)
		}
		args := m.Args()
		if got := args[slices.Index(args, "-machine")+1]; !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: the machine is %s, want %s", name, got, c.want)
		}
	}
}

// withoutMarkers returns a machine's arguments without those of a start.
func withoutMarkers(m *Machine) []string {
	var args []string
	list := m.Args()
	for i := 0; i < len(list); i++ {
		if list[i] == "-S" {
			continue
		}
		if list[i] == "-object" && (list[i+1] == Properties{"qom-type": MarkerType, "id": WaitMarker}.text() ||
			list[i+1] == Properties{"qom-type": MarkerType, "id": PauseMarker}.text()) {
			i++
			continue
		}
		args = append(args, list[i])
	}
	return args
}

// TestAGuestMigratesBetweenTwoMachines migrates between two real QEMUs: each machine's state must load into another one
// that was built for it.
func TestAGuestMigratesBetweenTwoMachines(t *testing.T) {
	for _, file := range vmiFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			vmi := adapted(t, file)
			// Kept UEFI variables are on a claim of both.
			variables := filepath.Join(t.TempDir(), "variables")
			from, to := startFor(t, vmi, "", variables), startFor(t, vmi, "4d5e", variables)
			uri := map[string]any{"uri": "unix:" + to.h.path("/var/run/kubevirt/migration.sock")}
			do(t, to.c, "migrate-set-capabilities", capabilities("events", "return-path", "late-block-activate"))
			do(t, to.c, "migrate-incoming", uri)
			do(t, from.c, "migrate-set-capabilities", capabilities("events", "return-path", "pause-before-switchover"))
			do(t, from.c, "cont", nil)
			do(t, from.c, "migrate", uri)
			awaitStatus(t, from.c, "query-migrate", "pre-switchover")
			do(t, from.c, "migrate-continue", map[string]any{"state": "pre-switchover"})
			awaitStatus(t, from.c, "query-migrate", "completed")
			awaitStatus(t, to.c, "query-status", "paused")
			do(t, from.c, "quit", nil)
			<-from.c.Done() // it holds locks on the images of both
			do(t, to.c, "cont", nil)
			awaitStatus(t, to.c, "query-status", "running")
		})
	}
}

type started struct {
	h *host
	c *qmp.Client
}

// startFor starts the machine of a VMI in a folder of its own.
func startFor(t *testing.T, vmi *v1.VirtualMachineInstance, incoming types.UID, variables string) started {
	t.Helper()
	h := newHost(t)
	h.variables = variables
	in := h.input(vmi)
	in.Incoming = incoming
	m, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	return started{h, h.start(m)}
}

func capabilities(names ...string) map[string]any {
	var list []map[string]any
	for _, name := range names {
		list = append(list, map[string]any{"capability": name, "state": true})
	}
	return map[string]any{"capabilities": list}
}

func do(t *testing.T, c *qmp.Client, command string, arguments any) {
	t.Helper()
	if err := c.Execute(t.Context(), command, arguments, nil); err != nil {
		t.Fatal(err)
	}
}

// awaitStatus waits until the answer to a query has a status.
func awaitStatus(t *testing.T, c *qmp.Client, query, want string) {
	t.Helper()
	var is struct {
		Status string
		Error  string `json:"error-desc"`
	}
	for deadline, tick := time.Now().Add(4*time.Minute), time.Tick(5*time.Millisecond); is.Status != want; <-tick {
		if err := c.Execute(t.Context(), query, nil, &is); err != nil {
			t.Fatal(err)
		}
		if is.Status == "failed" || time.Now().After(deadline) {
			t.Fatalf("%s says %q, want %q", query, is, want)
		}
	}
}
