//go:build apiserver

package controller

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (w *world) activeVMIs() []v1.VirtualMachineInstance {
	var list v1.VirtualMachineInstanceList
	w.do("listing VMIs", w.client.List(w.ctx, &list, client.InNamespace(w.namespace)))
	var out []v1.VirtualMachineInstance
	for _, vmi := range list.Items {
		if vmi.DeletionTimestamp == nil {
			out = append(out, vmi)
		}
	}
	return out
}

func (w *world) awaitReplicas(n int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d replicas", n), func() (bool, string) {
		var rs v1.VirtualMachineInstanceReplicaSet
		w.do("reading the replica set", w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "set"}, &rs))
		got := len(w.activeVMIs())
		return got == n && int(rs.Status.Replicas) == n, fmt.Sprintf("there are %d, the status says %d", got, rs.Status.Replicas)
	})
}

func (w *world) createSet(replicas int32) *v1.VirtualMachineInstanceReplicaSet {
	w.t.Helper()
	match := map[string]string{"app": "set"}
	rs := &v1.VirtualMachineInstanceReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set", Namespace: w.namespace},
		Spec: v1.VirtualMachineInstanceReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: match},
			Template: &v1.VirtualMachineInstanceTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: match}, Spec: testSpec()},
		},
	}
	w.do("creating the replica set", w.client.Create(w.ctx, rs))
	return rs
}

func TestAReplicaSetKeepsItsNumber(t *testing.T) {
	w := newWorld(t)
	rs := w.createSet(3)
	w.awaitReplicas(3)
	w.eventually("3 pods", func() (bool, string) { n := len(w.pods()); return n >= 3, fmt.Sprint(n) })
	w.awaitSettled()
	if n := len(w.pods()); n != 3 {
		t.Errorf("%d pods for 3 replicas", n)
	}

	failed := w.activeVMIs()[0]
	pod := w.run(failed.Name)
	w.end(failed.Name, pod, v1.Failed)
	w.eventually("the failed one to be replaced", func() (bool, string) {
		for _, vmi := range w.activeVMIs() {
			if vmi.UID == failed.UID {
				return false, "it is still there"
			}
		}
		return len(w.activeVMIs()) == 3, fmt.Sprintf("there are %d", len(w.activeVMIs()))
	})

	w.do("reading", w.client.Get(w.ctx, client.ObjectKeyFromObject(rs), rs))
	before := rs.DeepCopy()
	rs.Spec.Replicas = new(int32(1))
	w.do("scaling down", w.client.Patch(w.ctx, rs, client.MergeFrom(before)))
	w.awaitReplicas(1)
	w.awaitSettled()
	if n := len(w.activeVMIs()); n != 1 {
		t.Errorf("%d replicas are left of 1", n)
	}
}
