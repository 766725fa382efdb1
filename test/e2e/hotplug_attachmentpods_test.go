//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/test/hotplugwatch"
)

// TestAHandoverLosesNothing lets two volumes share an attachment pod and unplugs one of them. While the guest reads the
// other, it must move to a pod of its own; a watch must see it held at every moment. Then that pod is deleted, and
// evicted, which must be refused while the guest runs. internal/rules/hotplug explores the steps; here a kubelet
// unmounts, and the real eviction API counts budgets.
func TestAHandoverLosesNothing(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	for _, name := range []string{"stays", "goes"} {
		claim(t, ns, name, corev1.PersistentVolumeFilesystem, folderOnNode1(ns, name))
	}
	g := bootVM(t, newVM(onNode1(newVMI(ns, "handed")), v1.RunStrategyAlways))
	history := hotplugwatch.AttachmentPods(t, cluster.client, ns, "handed")

	shared := plugTogether(t, g, "stays", "goes")
	before, _ := history.Pods()
	g.run("echo kept | dd of=" + g.device("stays") + " conv=fsync")

	do(t, ns, "removevolume", "handed", "--volume-name=goes", "--persist")
	g.loses("goes")
	second := oneAttachmentPod(t, ns, "handed", shared.UID)
	if len(second.Spec.Volumes) != 1 {
		t.Errorf("pod %s holds what is left: %v", second.Name, second.Spec.Volumes)
	}
	g.sees("what was written before the handover", "head -n 1 "+g.device("stays"), "kept")
	eventually(t, "the watch to see the second pod", func(context.Context) error {
		switch ever, _ := history.Pods(); {
		case ever > before+1:
			t.Fatalf("%d attachment pods were made for the handover, want 1", ever-before)
		case ever == before:
			return errors.New("it has seen none")
		}
		return nil
	})

	err := cluster.client.SubResource("eviction").Create(t.Context(), second, &policyv1.Eviction{})
	if !apierrors.IsTooManyRequests(err) {
		t.Errorf("an eviction of what a running guest needs is answered by %v", err)
	}
	history.DeleteExternally(string(second.UID))
	if err := cluster.client.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	awaitVMI(t, ns, "handed", "the volume Ready through another pod", func(vmi *v1.VirtualMachineInstance) bool {
		s := volumeStatus(vmi, "stays")
		return s != nil && s.Phase == v1.VolumeReady && s.HotplugVolume.AttachPodUID != second.UID
	})
	g.sees("what was written before its pod was taken away", "head -n 1 "+g.device("stays"), "kept")

	do(t, ns, "stop", "handed")
	awaitAttachmentPods(t, ns, "handed", 0)
}

// plugTogether adds claims to a VM's template until one attachment pod holds them all. On a busy machine that pod may
// take so long that each volume gets a pod of its own; then the claims are removed and added again.
func plugTogether(t *testing.T, g *guest, claims ...string) *corev1.Pod {
	t.Helper()
	var shared *corev1.Pod
	eventually(t, "one attachment pod for "+strings.Join(claims, ", "), func(ctx context.Context) error {
		addToTemplate(t, g.namespace, g.name, claims...)
		for _, name := range claims {
			g.gets(name)
		}
		var uids []types.UID
		vmi := awaitRunning(t, g.namespace, g.name)
		for _, name := range claims {
			uids = append(uids, volumeStatus(vmi, name).HotplugVolume.AttachPodUID)
		}
		if len(slices.Compact(uids)) == 1 {
			shared = oneAttachmentPod(t, g.namespace, g.name, "")
			return nil
		}
		for _, name := range claims {
			do(t, g.namespace, "removevolume", g.name, "--volume-name="+name, "--persist")
			g.loses(name)
		}
		return fmt.Errorf("they have %v", uids)
	})
	return shared
}

// addToTemplate adds claims to a VM's template in one edit.
func addToTemplate(t *testing.T, namespace, name string, claims ...string) {
	t.Helper()
	vm := &v1.VirtualMachine{}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, vm); err != nil {
		t.Fatal(err)
	}
	edited := vm.DeepCopy()
	spec := &edited.Spec.Template.Spec
	for _, claim := range claims {
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: claim, VolumeSource: claimSource(claim, true)})
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{Name: claim, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}})
	}
	if err := cluster.client.Patch(t.Context(), edited, client.MergeFrom(vm)); err != nil {
		t.Fatal(err)
	}
}

// oneAttachmentPod waits until the VMI has exactly one attachment pod, which must stay and must have a UID other than
// before.
func oneAttachmentPod(t *testing.T, namespace, name string, before types.UID) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	eventually(t, "one attachment pod of "+name, func(ctx context.Context) error {
		pods, err := attachmentPods(ctx, namespace, name)
		if err != nil {
			return err
		}
		var names []string
		for i := range pods {
			names = append(names, pods[i].Name)
		}
		if len(pods) != 1 || pods[0].DeletionTimestamp != nil || pods[0].UID == before {
			return fmt.Errorf("there are %s", strings.Join(names, ", "))
		}
		pod = pods[0]
		return nil
	})
	return &pod
}
