//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestTheExamples(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	inTurn(t,
		chapter{"each is applied and runs", func(t *testing.T) { theExamplesRun(t, ns) }},
		chapter{"their namespace is deleted while they run", func(t *testing.T) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
			deleteObject(t, namespace)
			awaitGone(t, namespace)
		}},
	)
}

// theExamplesRun applies each shipped example to a cluster with the shipped configuration. Only a guest to log in to
// shows that it works.
func theExamplesRun(t *testing.T, ns string) {
	t.Helper()
	warnsOfNothing(t, ns)
	folder := filepath.Join("..", "..", "examples")
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("found no example: %v", err)
	}
	if out, err := kubectl(t.Context(), "-n", ns, "apply", "-f", folder); err != nil {
		t.Fatalf("applying the examples: %v\n%s", err, out)
	}
	in := client.InNamespace(ns)
	vms, sets := &v1.VirtualMachineList{}, &v1.VirtualMachineInstanceReplicaSetList{}
	for _, list := range []client.ObjectList{vms, sets} {
		if err := cluster.client.List(t.Context(), list, in); err != nil {
			t.Fatal(err)
		}
	}
	// A replica set has several machines.
	machines := len(files)
	for i := range sets.Items {
		machines += int(*sets.Items[i].Spec.Replicas) - 1
	}
	for i := range vms.Items {
		awaitPrintable(t, ns, vms.Items[i].Name, v1.VirtualMachineStatusRunning)
	}
	vmis := &v1.VirtualMachineInstanceList{}
	eventually(t, "a VMI for each machine of the examples", func(ctx context.Context) error {
		if err := cluster.client.List(ctx, vmis, in); err != nil || len(vmis.Items) != machines {
			return fmt.Errorf("there are %d of %d (%w)", len(vmis.Items), machines, err)
		}
		return nil
	})
	for i := range vmis.Items {
		g := login(t, ns, vmis.Items[i].Name)
		if g.name != "vm-pvc" {
			continue
		}
		if size := g.run("cat /sys/block/vdb/size"); size != "524288" {
			t.Errorf("the disk of a claim of 256Mi has %s sectors of 512 bytes", size)
		}
	}
}
