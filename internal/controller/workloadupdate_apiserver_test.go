//go:build apiserver

package controller

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

func TestOutdatedGuestsAreUpdated(t *testing.T) {
	w := newWorld(t)
	w.createEvictable("vmi")
	w.runOn("vmi", testNode)
	w.stop()
	kv := &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "kubevirt"}}
	kv.Spec.WorkloadUpdateStrategy.WorkloadUpdateMethods = []v1.WorkloadUpdateMethod{v1.WorkloadUpdateMethodLiveMigrate}
	w.do("creating the KubeVirt object", w.client.Create(w.ctx, kv))
	w.options.launcherImage = "example.com/launcher:2"
	w.startLoops()
	// The loops of this world see the VMIs of all worlds; the test checks only its own.
	var m *v1.VirtualMachineInstanceMigration
	w.eventually("a migration for the update", func() (bool, string) {
		var list v1.VirtualMachineInstanceMigrationList
		w.do("listing the migrations", w.client.List(w.ctx, &list, client.InNamespace(w.namespace)))
		for i := range list.Items {
			if _, is := list.Items[i].Annotations[v1.WorkloadUpdateMigrationAnnotation]; is {
				m = &list.Items[i]
			}
		}
		_, labeled := w.vmi("vmi").Labels[v1.OutdatedLauncherImageLabel]
		return m != nil && labeled, fmt.Sprintf("there are %+v, labeled: %v", list.Items, labeled)
	})
	w.eventually("the outdated guest to be counted", func() (bool, string) {
		n := w.kubevirt().Status.OutdatedVirtualMachineInstanceWorkloads
		return n != nil && *n >= 1, fmt.Sprint(n)
	})
	w.bringTo(m, v1.MigrationRunning, otherNode)
	w.targetSays(m, vmistatus.TargetMigration{Runs: true})
	w.eventually("the guest to be up to date", func() (bool, string) {
		vmi := w.vmi("vmi")
		_, labeled := vmi.Labels[v1.OutdatedLauncherImageLabel]
		return vmi.Status.LauncherContainerImageVersion == "example.com/launcher:2" && !labeled, fmt.Sprintf("%v %+v", vmi.Labels, vmi.Status)
	})
}
