//go:build apiserver

package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

func (w *world) setRollout(strategy v1.VMRolloutStrategy) {
	w.t.Helper()
	kv := &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Name: clusterconfig.Name, Namespace: w.namespace}}
	if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(kv), kv); client.IgnoreNotFound(err) != nil {
		w.t.Fatalf("reading the KubeVirt object: %v", err)
	}
	before := kv.DeepCopy()
	kv.Spec.Configuration.VMRolloutStrategy = &strategy
	if kv.ResourceVersion == "" {
		w.do("creating the KubeVirt object", w.client.Create(w.ctx, kv))
		w.t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), kv) })
	} else {
		w.do("changing the rollout strategy", w.client.Patch(w.ctx, kv, client.MergeFrom(before)))
	}
	w.seesKubeVirt()
}

func (w *world) changeTemplate(change func(*v1.VirtualMachineInstanceSpec)) {
	w.t.Helper()
	vm := w.vm("vm")
	before := vm.DeepCopy()
	change(&vm.Spec.Template.Spec)
	w.do("changing the template", w.client.Patch(w.ctx, vm, client.MergeFrom(before)))
}

// awaitRestartRequired waits until the condition names this path; "" waits until there is none.
func (w *world) awaitRestartRequired(path string) {
	w.t.Helper()
	w.eventually("RestartRequired to name "+path, func() (bool, string) {
		for _, c := range w.vm("vm").Status.Conditions {
			if c.Type == v1.VirtualMachineRestartRequired {
				return path != "" && strings.Contains(c.Message, path), c.Message
			}
		}
		return path == "", "there is none"
	})
}

func (w *world) awaitZone(zone string) {
	w.t.Helper()
	w.eventually("the VMI to be for zone "+zone, func() (bool, string) {
		is := w.vmi("vm").Spec.NodeSelector["zone"]
		return is == zone, "it is for zone " + is
	})
}

func zone(value string) func(*v1.VirtualMachineInstanceSpec) {
	return func(spec *v1.VirtualMachineInstanceSpec) {
		spec.NodeSelector, spec.Tolerations = nil, nil
		if value != "" {
			spec.NodeSelector = map[string]string{"zone": value}
			spec.Tolerations = []corev1.Toleration{{Key: value, Operator: corev1.TolerationOpExists}}
		}
	}
}

func TestWhatAGuestRunsByFollowsTheTemplate(t *testing.T) {
	w := newWorld(t)
	w.createVM("vm", v1.RunStrategyAlways)
	w.run("vm")
	w.awaitPrintable("vm", v1.VirtualMachineStatusRunning)

	// Staged until the strategy changes, which changes nothing in the VM.
	w.changeTemplate(zone("a"))
	w.awaitRestartRequired("spec.template.spec.nodeSelector")
	w.setRollout(v1.VMRolloutStrategyLiveUpdate)
	w.awaitZone("a")
	w.awaitRestartRequired("")

	w.changeTemplate(zone("b"))
	w.awaitZone("b")
	if got := w.vmi("vm").Spec.Tolerations; len(got) != 1 || got[0].Key != "b" {
		t.Errorf("the VMI tolerates %+v", got)
	}
	w.awaitSettled()
	w.awaitRestartRequired("")

	// The VMI's present value counts, not the one from its start.
	w.setRollout(v1.VMRolloutStrategyStage)
	w.changeTemplate(zone(""))
	w.awaitRestartRequired("spec.template.spec.tolerations")
	w.changeTemplate(zone("b"))
	w.awaitRestartRequired("")
	if pods := w.pods(); len(pods) != 1 {
		t.Errorf("%d launcher pods: the guest has not stayed where it is", len(pods))
	}
}
