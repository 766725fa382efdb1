//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/test/hotplugwatch"
)

// TestADrainWaitsForTheGuest cordons a guest's node, where volumes can still be plugged, and drains it. The
// attachment pods and the disk must stay until the guest is gone, and come back with the VM. Only a real drain
// evicts. Not parallel: other tests need the node.
func TestADrainWaitsForTheGuest(t *testing.T) {
	onlyInTestAll(t)
	ns := newNamespace(t)
	for _, name := range []string{"before", "after"} {
		claim(t, ns, name, corev1.PersistentVolumeFilesystem, folderOnNode1(ns, name))
	}
	g := bootVM(t, newVM(onNode1(newVMI(ns, "drained")), v1.RunStrategyAlways))
	hotplugwatch.AttachmentPods(t, cluster.client, ns, "drained")
	do(t, ns, "addvolume", "drained", "--volume-name=before", "--persist")
	g.gets("before")
	uncordon := cordon(t, node1)
	do(t, ns, "addvolume", "drained", "--volume-name=after", "--persist")
	g.gets("after")
	g.run("echo kept | dd of=" + g.device("before") + " conv=fsync")

	instance := instanceUID(t, ns, "drained")
	own := v1.CreatedByLabel + "=" + string(instance)
	asked, err := attachmentPods(t.Context(), ns, "drained")
	if err != nil {
		t.Fatal(err)
	}
	drainUntil(t, node1, v1.AppLabel+"=hotplug-disk,"+own, func(said *transcript) {
		for i := range asked {
			said.await(t, "the drain", fmt.Sprintf("error when evicting pods/%q", asked[i].Name))
		}
		said.await(t, "the drain", "disruption budget")
	})
	pods, err := attachmentPods(t.Context(), ns, "drained")
	if err != nil || len(pods) != 2 || pods[0].DeletionTimestamp != nil || pods[1].DeletionTimestamp != nil {
		t.Errorf("%d attachment pods are there after the drain, want 2 that stay (%v)", len(pods), err)
	}
	g.sees("what was written before the drain", "head -n 1 "+g.device("before"), "kept")

	if out, err := drain(t, node1, own); err != nil {
		t.Fatalf("draining the guest, too: %v\n%s", err, out)
	}
	awaitAttachmentPods(t, ns, "drained", 0)
	uncordon()
	awaitNextInstance(t, ns, "drained", instance)
	g = login(t, ns, "drained")
	g.gets("after")
	g.gets("before")
	g.sees("what was written before the drain", "head -n 1 "+g.device("before"), "kept")
}

func cordon(t *testing.T, node string) (uncordon func()) {
	t.Helper()
	if out, err := kubectl(t.Context(), "cordon", node); err != nil {
		t.Fatalf("cordoning %s: %v\n%s", node, err, out)
	}
	uncordon = func() {
		if out, err := kubectl(context.Background(), "uncordon", node); err != nil {
			t.Errorf("uncordoning %s: %v\n%s", node, err, out)
		}
	}
	t.Cleanup(uncordon)
	return uncordon
}

// drain bounds the whole drain by drainTime.
func drain(t *testing.T, node, selector string) (string, error) {
	t.Helper()
	return kubectl(t.Context(), drainOf(node, selector, "--timeout="+drainTime)...)
}

func drainOf(node, selector string, flags ...string) []string {
	return append([]string{"drain", node, "--pod-selector=" + selector, "--delete-emptydir-data"}, flags...)
}

// drainUntil drains a node, not all of whose pods leave, until seen returns, and ends the drain then. A drain with a
// short timeout may end before the busy API server has answered its first eviction. It returns what the drain has said.
func drainUntil(t *testing.T, node, selector string, seen func(said *transcript)) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said := &transcript{}
	command := exec.CommandContext(ctx, binary("drydock"), append([]string{"kubectl"}, drainOf(node, selector)...)...)
	command.Stdout, command.Stderr = said, said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			t.Logf("the drain of %s says\n%s", node, said.String())
		}
	}()
	seen(said)
	cancel()
	_ = command.Wait() // its context has ended
	if command.ProcessState.Success() {
		t.Errorf("the drain of %s has ended with 0 although pods stay", node)
	}
	return said.String()
}

// untilItSays is for drainUntil.
func untilItSays(t *testing.T, text string) func(*transcript) {
	return func(said *transcript) {
		t.Helper()
		said.await(t, "the drain", text)
	}
}

// TestARestartedVMGoesToItsHotPluggedDisk has a VM that prefers one node and a local disk on the other, whose
// status must say why it is not plugged. After a restart the real scheduler must put the VM on the disk's node.
func TestARestartedVMGoesToItsHotPluggedDisk(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	claimOn(t, ns, "far", node2)
	vmi := newVMI(ns, "follower")
	vmi.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 100,
			Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node1},
			}}},
		}},
	}}
	create(t, newVM(vmi, v1.RunStrategyAlways))
	awaitOn(t, ns, "follower", node1)
	do(t, ns, "addvolume", "follower", "--volume-name=far", "--persist")
	awaitVMI(t, ns, "follower", "a word about the disk on another node", func(vmi *v1.VirtualMachineInstance) bool {
		s := volumeStatus(vmi, "far")
		return s != nil && s.Phase == v1.VolumePending && strings.Contains(s.Message, "can't be used on node "+node1)
	})

	restartAndAwait(t, ns, "follower")
	awaitOn(t, ns, "follower", node2)
	g := login(t, ns, "follower")
	g.gets("far")
	g.run("echo near | dd of=" + g.device("far") + " conv=fsync")
}
