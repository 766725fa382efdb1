//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestTheExamples applies each shipped example to a cluster with the shipped configuration, and logs in to its guest.
func TestTheExamples(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	warnsOfNothing(t, ns)
	files, err := filepath.Glob(filepath.Join("..", "..", "examples", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("found no example: %v", err)
	}
	for _, file := range files {
		if out, err := kubectl(t.Context(), "-n", ns, "apply", "-f", file); err != nil {
			t.Fatalf("applying %s: %v\n%s", file, err, out)
		}
	}
	in := client.InNamespace(ns)
	vms, sets := &v1.VirtualMachineList{}, &v1.VirtualMachineInstanceReplicaSetList{}
	for _, list := range []client.ObjectList{vms, sets} {
		if err := cluster.client.List(t.Context(), list, in); err != nil {
			t.Fatal(err)
		}
	}
	// Each file has one machine; a replica set has several.
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
