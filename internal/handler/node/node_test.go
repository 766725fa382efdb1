package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"drydock.dev/drydock/internal/nodeprobe"
)

func TestLabels(t *testing.T) {
	got := Labels(nodeprobe.Result{CPUModels: []string{"Nehalem", "qemu64"}, HostModel: "Nehalem"})
	want := map[string]string{
		"kubevirt.io/schedulable":                 "true",
		"cpu-model.node.kubevirt.io/Nehalem":      "true",
		"cpu-model.node.kubevirt.io/qemu64":       "true",
		"host-model-cpu.node.kubevirt.io/Nehalem": "true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
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
			},
			patch: `{"metadata":{"labels":{"cpu-model.node.kubevirt.io/old":null,"host-model-cpu.node.kubevirt.io/old":null}}}`,
		},
	} {
		patch, err := Patch(tc.have, want)
		if err != nil || string(patch) != tc.patch {
			t.Errorf("%s: %s, %v", name, patch, err)
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
