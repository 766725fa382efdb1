package kubevirt

import (
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

func TestStatus(t *testing.T) {
	up := func(name string) component {
		return component{name: name, exists: true, wanted: 1, updated: 1, available: 1, current: true}
	}
	tests := map[string]struct {
		phase      v1.KubeVirtPhase
		components []component
		wantPhase  v1.KubeVirtPhase
		available  string
		degraded   string
	}{
		"all components run: deployed and available": {
			components: []component{up("virt-api"), up("virt-handler")},
			wantPhase:  v1.KubeVirtPhaseDeployed, available: "True: All components are ready.", degraded: "False: All components are ready.",
		},
		"one is still missing: deploying, not degraded": {
			components: []component{up("virt-api"), {name: "virt-handler"}},
			wantPhase:  v1.KubeVirtPhaseDeploying, available: "False: virt-handler does not exist", degraded: "False: virt-handler does not exist",
		},
		"one was there and is away: deployed, degraded": {
			phase:      v1.KubeVirtPhaseDeployed,
			components: []component{up("virt-api"), {name: "virt-handler", exists: true, wanted: 2, updated: 2, available: 1, current: true}},
			wantPhase:  v1.KubeVirtPhaseDeployed, available: "False: virt-handler: 1 of 2 available", degraded: "True: virt-handler: 1 of 2 available",
		},
		"no node for virt-handler yet: that is said": {
			components: []component{up("virt-api"), {name: "virt-handler", exists: true, current: true}},
			wantPhase:  v1.KubeVirtPhaseDeploying, available: "False: virt-handler has no pod", degraded: "False: virt-handler has no pod",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := status(&v1.KubeVirt{Status: v1.KubeVirtStatus{Phase: test.phase}}, facts{components: test.components}, time.Unix(1000, 0))
			if got.Phase != test.wantPhase {
				t.Errorf("phase %s, want %s", got.Phase, test.wantPhase)
			}
			said := map[v1.KubeVirtConditionType]string{}
			for _, c := range got.Conditions {
				said[c.Type] = string(c.Status) + ": " + c.Message
			}
			if said[v1.KubeVirtConditionAvailable] != test.available {
				t.Errorf("Available is %q, want %q", said[v1.KubeVirtConditionAvailable], test.available)
			}
			if said[v1.KubeVirtConditionDegraded] != test.degraded {
				t.Errorf("Degraded is %q, want %q", said[v1.KubeVirtConditionDegraded], test.degraded)
			}
			again := status(&v1.KubeVirt{Status: got}, facts{components: test.components}, time.Unix(2000, 0))
			for i := range again.Conditions {
				if again.Conditions[i] != got.Conditions[i] {
					t.Errorf("a second look changes %+v to %+v", got.Conditions[i], again.Conditions[i])
				}
			}
		})
	}
}

func TestStatusSaysWhoServesDataVolumes(t *testing.T) {
	for deployment, want := range map[string]bool{"": false, "cdi/cdi-deployment": true} {
		kv := &v1.KubeVirt{Status: status(&v1.KubeVirt{}, facts{cdi: deployment}, time.Unix(1000, 0))}
		if got := clusterconfig.FromKubeVirt(kv).CDI; got != want {
			t.Errorf("with CDI's deployment at %q the settings say that CDI serves: %v", deployment, got)
		}
	}
}

func TestStatusSaysWhyWorkloadsAreNotAsTheObjectHasThem(t *testing.T) {
	for refused, want := range map[string]string{
		"":               "True: The workloads are as this object has them.",
		"virt-api: sigh": "False: virt-api: sigh",
	} {
		for _, c := range status(&v1.KubeVirt{}, facts{refused: refused}, time.Unix(1000, 0)).Conditions {
			if got := string(c.Status) + ": " + c.Message; c.Type == v1.KubeVirtConditionSynchronized && got != want {
				t.Errorf("with %q it says %q, want %q", refused, got, want)
			}
		}
	}
}
