package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/nodeprobe"
)

var (
	runs  = nodeprobe.Accelerator{Usable: true}
	fails = nodeprobe.Accelerator{Reason: "the guest stopped after real mode: QEMU's run state is internal-error"}
	none  = nodeprobe.Accelerator{Absent: true, Reason: "the node has no /dev/kvm"}
)

func TestLabels(t *testing.T) {
	for name, tc := range map[string]struct {
		probe                       nodeprobe.Result
		schedulable, kvm, tcg, uefi string
	}{
		"everything works":               {nodeprobe.Result{KVM: runs, TCG: runs}, "true", "usable", "usable", "usable"},
		"no KVM":                         {nodeprobe.Result{KVM: none, TCG: runs}, "true", "absent", "usable", "usable"},
		"a broken KVM":                   {nodeprobe.Result{KVM: fails, TCG: runs}, "true", "unusable", "usable", "usable"},
		"only emulation asked for":       {nodeprobe.Result{KVM: fails, TCG: runs, Requested: "tcg"}, "true", "off", "usable", "usable"},
		"only a broken KVM asked for":    {nodeprobe.Result{KVM: fails, TCG: runs, Requested: "kvm"}, "false", "unusable", "usable", "unusable"},
		"only an absent KVM asked for":   {nodeprobe.Result{KVM: none, TCG: runs, Requested: "kvm"}, "false", "absent", "usable", "unusable"},
		"emulation broken, KVM works":    {nodeprobe.Result{KVM: runs, TCG: fails}, "true", "usable", "unusable", "usable"},
		"nothing works":                  {nodeprobe.Result{KVM: fails, TCG: fails}, "false", "unusable", "unusable", "unusable"},
		"UEFI is broken in emulation":    {nodeprobe.Result{KVM: none, TCG: nodeprobe.Accelerator{Usable: true, UEFI: "no"}}, "true", "absent", "usable", "unusable"},
		"UEFI is broken, and not in use": {nodeprobe.Result{KVM: runs, TCG: nodeprobe.Accelerator{Usable: true, UEFI: "no"}}, "true", "usable", "usable", "usable"},
		"an image without UEFI":          {nodeprobe.Result{KVM: runs, TCG: runs, UEFIAbsent: true}, "true", "usable", "usable", "absent"},
	} {
		tc.probe.CPUModels, tc.probe.HostModel = []string{"Nehalem", "qemu64"}, "Nehalem"
		tc.probe.MachineTypes = []string{"pc-q35-10.0", "q35"}
		tc.probe.Build = "Debian 1:10.0.13+ds-0+deb13u1"
		want := map[string]string{
			"kubevirt.io/schedulable": tc.schedulable, layout.KVMLabel: tc.kvm, layout.TCGLabel: tc.tcg, layout.UEFILabel: tc.uefi,
			"cpu-model.node.kubevirt.io/Nehalem":        "true",
			"cpu-model.node.kubevirt.io/qemu64":         "true",
			"host-model-cpu.node.kubevirt.io/Nehalem":   "true",
			"machine-type.node.kubevirt.io/pc-q35-10.0": "true",
			"machine-type.node.kubevirt.io/q35":         "true",
			layout.QEMULabel:                            "Debian_1_10.0.13_ds-0_deb13u1",
		}
		if diff := cmp.Diff(want, Labels(tc.probe)); diff != "" {
			t.Errorf("%s: labels (-want +got):\n%s", name, diff)
		}
	}
}

func TestABuildBecomesTheValueOfALabel(t *testing.T) {
	for build, want := range map[string]string{
		"": "", "v9.1.0-1+b2": "v9.1.0-1_b2", "(a b)": "a_b", "é:": "", strings.Repeat("a", 62) + "+b": strings.Repeat("a", 62),
		strings.Repeat("b", 100): strings.Repeat("b", 63),
	} {
		if got := labelValue(build); got != want {
			t.Errorf("%q: got %q, want %q", build, got, want)
		}
	}
}

func TestAChangeIsReportedOnce(t *testing.T) {
	const (
		unusable = "Warning KVMUnusable KVM can't be used on this node: the guest stopped after real mode: QEMU's run state is internal-error. " +
			"Guests are emulated if the KubeVirt object has developerConfiguration.useEmulation, and do not run here otherwise"
		nothing = "Warning NoAccelerator no guest can run on this node. Emulation: the guest stopped after real mode: QEMU's run state is internal-error. " +
			"KVM: the guest stopped after real mode: QEMU's run state is internal-error"
	)
	broken := nodeprobe.Result{KVM: fails, TCG: runs}
	all := nodeprobe.Result{KVM: runs, TCG: runs}
	for name, tc := range map[string]struct {
		before *nodeprobe.Result
		now    nodeprobe.Result
		want   []string
	}{
		"a new node on which all works":       {nil, all, nil},
		"a new node without KVM":              {nil, nodeprobe.Result{KVM: none, TCG: runs}, nil},
		"a new node with a broken KVM":        {nil, broken, []string{unusable}},
		"the same at a restart":               {&broken, broken, nil},
		"KVM that has broken":                 {&all, broken, []string{unusable}},
		"KVM that works again":                {&broken, all, []string{"Normal KVMUsable a guest ran on this node; it can be used again"}},
		"KVM that was taken away":             {&all, nodeprobe.Result{KVM: none, TCG: runs}, nil},
		"emulation asked for":                 {&all, nodeprobe.Result{KVM: nodeprobe.Accelerator{Reason: "not tried"}, TCG: runs, Requested: "tcg"}, nil},
		"nothing works":                       {&all, nodeprobe.Result{KVM: fails, TCG: fails}, []string{nothing}},
		"nothing works, again":                {&nodeprobe.Result{KVM: fails, TCG: fails}, nodeprobe.Result{KVM: fails, TCG: fails}, nil},
		"something works again":               {&nodeprobe.Result{KVM: fails, TCG: fails}, broken, []string{"Normal AcceleratorFound guests can run on this node with tcg", unusable, "Normal EmulationUsable a guest ran on this node; it can be used again", "Normal UEFIUsable a guest ran on this node; it can be used again"}},
		"emulation that has broken":           {&all, nodeprobe.Result{KVM: runs, TCG: fails}, []string{"Warning EmulationUnusable QEMU can't emulate a guest on this node: " + fails.Reason}},
		"UEFI that has broken":                {&all, nodeprobe.Result{KVM: nodeprobe.Accelerator{Usable: true, UEFI: "it stopped"}, TCG: runs}, []string{"Warning UEFIUnusable guests with UEFI can't run on this node: it stopped"}},
		"KVM asked for that the node has not": {&all, nodeprobe.Result{KVM: none, TCG: runs, Requested: "kvm"}, []string{"Warning NoAccelerator no guest can run on this node. Emulation: usable. KVM: the node has no /dev/kvm. DRYDOCK_ACCEL allows kvm only"}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{}
			node.Name = "node1"
			if tc.before != nil {
				node.Labels = Labels(*tc.before)
			}
			failures := 1
			server := fake.NewClientBuilder().WithObjects(node).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					if failures--; failures >= 0 {
						return errors.New("the API server is away")
					}
					return c.Patch(ctx, o, p, opts...)
				},
			}).Build()
			recorder := events.NewFakeRecorder(10)
			// Twice: virt-handler restarts.
			for range 2 {
				l := &Labeler{Reader: server, Writer: server, Node: "node1", Probe: tc.now, Recorder: recorder, Log: logr.Discard()}
				if err := l.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			close(recorder.Events)
			var got []string
			for event := range recorder.Events {
				got = append(got, event)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if err := server.Get(t.Context(), client.ObjectKey{Name: "node1"}, node); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Labels(tc.now), node.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

// virt-controller has set the label of the node to false, because virt-handler had left. That is no result of a probe.
func TestVirtHandlerComesBackToANode(t *testing.T) {
	works, emulates := nodeprobe.Result{KVM: runs, TCG: runs}, nodeprobe.Result{KVM: none, TCG: runs}
	for name, tc := range map[string]struct {
		before, now nodeprobe.Result
		want        string
		events      int
	}{
		"with KVM":               {works, works, "true", 0},
		"without KVM":            {emulates, emulates, "true", 0},
		"and KVM is gone":        {works, emulates, "true", 0},
		"and no guest runs":      {works, nodeprobe.Result{KVM: fails, TCG: fails}, "false", 1},
		"and emulation broke":    {emulates, nodeprobe.Result{KVM: none, TCG: fails}, "false", 1},
		"and UEFI is not to run": {emulates, nodeprobe.Result{KVM: none, TCG: nodeprobe.Accelerator{Usable: true, UEFI: "no"}}, "true", 1},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{}
			node.Name = "node1"
			node.Labels = Labels(tc.before)
			node.Labels["kubevirt.io/schedulable"] = "false"
			server := fake.NewClientBuilder().WithObjects(node).Build()
			recorder := events.NewFakeRecorder(10)
			l := &Labeler{Reader: server, Writer: server, Node: "node1", Probe: tc.now, Recorder: recorder, Log: logr.Discard()}
			if err := l.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := server.Get(t.Context(), client.ObjectKey{Name: "node1"}, node); err != nil {
				t.Fatal(err)
			}
			if got := node.Labels["kubevirt.io/schedulable"]; got != tc.want || len(recorder.Events) != tc.events {
				t.Errorf("the label is %q after %d events, want %q after %d", got, len(recorder.Events), tc.want, tc.events)
			}
		})
	}
}

// virt-controller judged the node before virt-handler was back, and its write comes after virt-handler has found
// nothing to write. After the kubelet offers the devices no such write can come. Only then is the node ready for
// guests: before that the scheduler would find no devices, and warn.
func TestTheLabelIsLookedAtAgainWhenTheDevicesAreOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probe := nodeprobe.Result{KVM: runs, TCG: runs}
		node := &corev1.Node{}
		node.Name = "node1"
		node.Labels = Labels(probe)
		server := fake.NewClientBuilder().WithObjects(node).WithStatusSubresource(node).Build()
		l := &Labeler{Reader: server, Writer: server, Node: "node1", Probe: probe, Offers: []string{layout.ResourceKVM, layout.ResourceTUN},
			Recorder: events.NewFakeRecorder(10), Log: logr.Discard()}
		ended := make(chan error, 1)
		go func() { ended <- l.Run(t.Context()) }()
		synctest.Wait()

		patch := func(text string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(text)) }
		if err := server.Patch(t.Context(), node, patch(`{"metadata":{"labels":{"kubevirt.io/schedulable":"false"}}}`)); err != nil {
			t.Fatal(err)
		}
		for _, allocatable := range []string{
			`{}`, `{"devices.kubevirt.io/kvm":"1k"}`, `{"devices.kubevirt.io/kvm":"1k","devices.kubevirt.io/tun":"0"}`,
		} {
			if err := server.Status().Patch(t.Context(), node, patch(`{"status":{"allocatable":`+allocatable+`}}`)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), longestLook)
			err := l.Await(ctx)
			cancel()
			if err == nil || !strings.Contains(err.Error(), "node1 does not have its labels and its devices (devices.kubevirt.io/kvm, devices.kubevirt.io/tun) yet") {
				t.Errorf("the node offers %s, and is ready: %v", allocatable, err)
			}
			select {
			case err := <-ended:
				t.Fatalf("virt-handler does not look any more, before the devices are offered: %v", err)
			default:
			}
		}
		if err := server.Status().Patch(t.Context(), node, patch(`{"status":{"allocatable":{"devices.kubevirt.io/tun":"1k"}}}`)); err != nil {
			t.Fatal(err)
		}
		if err := l.Await(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if err := server.Get(t.Context(), client.ObjectKey{Name: "node1"}, node); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Labels(probe), node.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
	})
}

func TestPatchOnlyWhatDiffers(t *testing.T) {
	want := map[string]string{"kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/new": "true"}
	for name, tc := range map[string]struct {
		have  map[string]string
		patch string
	}{
		"nothing differs": {
			have: map[string]string{"kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/new": "true", "zone": "a"},
		},
		"a new node": {
			have:  map[string]string{"zone": "a"},
			patch: `{"metadata":{"labels":{"cpu-model.node.kubevirt.io/new":"true","kubevirt.io/schedulable":"true"}}}`,
		},
		"another CPU than before": {
			have: map[string]string{
				"kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/new": "true",
				"cpu-model.node.kubevirt.io/old": "true", "host-model-cpu.node.kubevirt.io/old": "true", "zone": "a",
				"machine-type.node.kubevirt.io/old": "true",
			},
			patch: `{"metadata":{"labels":{"cpu-model.node.kubevirt.io/old":null,"host-model-cpu.node.kubevirt.io/old":null,"machine-type.node.kubevirt.io/old":null}}}`,
		},
	} {
		patch, err := Patch(tc.have, want)
		if err != nil || string(patch) != tc.patch {
			t.Errorf("%s: %s, %v", name, patch, err)
		}
	}
}

// The probe's result must be read as soon as it exists, and not before.
func TestTheProbeIsAwaited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.json")
	p := NewProbe()
	if usable, known := p.KVM(); usable || known {
		t.Error("something is known of a node that was not probed")
	}
	ended := make(chan error, 1)
	go func() {
		err := p.Await(t.Context(), path)
		if found := p.Found(); err == nil && found.QEMU != "7.2.22" {
			err = fmt.Errorf("found is %+v", found)
		}
		ended <- err
	}()
	// virt-launcher writes another file first, and renames it.
	other := filepath.Join(filepath.Dir(path), ".new-1")
	if err := os.WriteFile(other, []byte(`{"kvm":{"usable":true},"qemu":"7.2.22"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, known := p.KVM(); known {
		t.Error("a file that is not whole yet is read")
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if usable, known := p.KVM(); !usable || !known {
		t.Errorf("KVM is usable: %v, which is known: %v", usable, known)
	}
	if err := NewProbe().Await(t.Context(), filepath.Join(path, "none", "node.json")); err == nil {
		t.Error("a folder that does not exist is watched")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := NewProbe().Known(ctx); err == nil || !strings.Contains(err.Error(), "has not ended yet") {
		t.Errorf("a result is known that nobody has written: %v", err)
	}
	if err := NewProbe().Await(ctx, path+"-none"); !errors.Is(err, context.Canceled) {
		t.Errorf("the wait ends with %v", err)
	}
}

// All that follows from a probe is decided once, so a new verdict must end virt-handler.
func TestTheVerdictOnAStarvedNodeEndsVirtHandler(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.json")
	writes := func(result string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(result), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	after := func(first string) chan error {
		t.Helper()
		writes(first)
		p := NewProbe()
		if err := p.Await(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- p.AwaitAnother(t.Context(), path) }()
		return ended
	}
	if err := <-after(`{"tcg":{"usable":true}}`); err != nil {
		t.Errorf("a node with a verdict: %v", err)
	}
	// virt-handler must not leave its node for what it knows.
	confirmed := after(`{"kvm":{"reason":"it did not finish within 2s"},"tcg":{"usable":true,"milliseconds":900},"starved":true}`)
	writes(`{"kvm":{"reason":"it stopped"},"tcg":{"usable":true,"milliseconds":300}}`)
	if err := <-confirmed; err != nil {
		t.Errorf("the verdict is confirmed: %v", err)
	}
	for verdict, want := range map[string]string{
		`{"tcg":{"usable":true}}`:                "guests can run with tcg",
		`{"tcg":{"usable":true},"starved":true}`: "guests can run with tcg",
	} {
		ended := after(`{"kvm":{"absent":true},"starved":true}`)
		writes(`{"starved":true,"qemu":"7.2.22"}`)
		select {
		case err := <-ended:
			t.Errorf("it ends without a verdict: %v", err)
		default:
		}
		writes(verdict)
		var err error
		select {
		case err = <-ended:
		case <-time.After(4 * time.Minute):
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("after %s: %v", verdict, err)
		}
	}
}

func TestReadProbe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.json")
	if _, err := ReadProbe(path); err == nil || !strings.Contains(err.Error(), "probe-node") {
		t.Errorf("a missing probe gave %v", err)
	}
	if err := os.WriteFile(path, []byte(`{"kvm":{"usable":false,"reason":"no"},"cpuModels":["a"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	probe, err := ReadProbe(path)
	if err != nil || probe.KVM.Reason != "no" || len(probe.CPUModels) != 1 {
		t.Errorf("read %+v, %v", probe, err)
	}
}

// A node without SELinux must get no label, and no write because of it.
func TestTheLabelOfSELinuxComesAndGoesWithIt(t *testing.T) {
	probe := nodeprobe.Result{KVM: runs, TCG: runs}
	object := &corev1.Node{}
	object.Name = "node1"
	object.Labels = Labels(probe)
	writes := 0
	server := fake.NewClientBuilder().WithObjects(object).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	for _, step := range []struct {
		selinux bool
		want    string
		writes  int
	}{{false, "", 0}, {true, "enabled", 1}, {true, "enabled", 1}, {false, "", 2}} {
		l := &Labeler{Reader: server, Writer: server, Node: "node1", Probe: probe, SELinux: step.selinux,
			Recorder: events.NewFakeRecorder(10), Log: logr.Discard()}
		if err := l.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := server.Get(t.Context(), client.ObjectKey{Name: "node1"}, object); err != nil {
			t.Fatal(err)
		}
		if got := object.Labels[layout.SELinuxLabel]; got != step.want || writes != step.writes {
			t.Errorf("SELinux %v: label %q after %d writes, want %q after %d", step.selinux, got, writes, step.want, step.writes)
		}
	}
}
