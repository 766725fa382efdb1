//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"path"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/machine/machinetype"
)

var otherVersion = flag.String("migration.other", "", "the folder with another version's images, with which guests are migrated")

const (
	thisVirt      = "drydock.dev/virt:devel"
	otherVirt     = "drydock.dev/virt:other"
	otherLauncher = "drydock.dev/virt-launcher:other"
)

// TestMigrationsBetweenVersions migrates guests while the nodes and virt-controller have two versions, as during an
// update or a rollback. Guests must go from each version to the other. A guest of the other version must have the
// same identity after the update, in this version's QEMU, and after its next start. Only a cluster with two builds shows
// that.
func TestMigrationsBetweenVersions(t *testing.T) {
	if *otherVersion == "" {
		t.Skip("there is no other version here: make test-versions BEFORE=<commit> builds one")
	}
	loadAs(t, filepath.Join(*otherVersion, "virt.tar"), thisVirt, otherVirt)
	loadAs(t, filepath.Join(*otherVersion, "virt-launcher.tar"), launcherImage, otherLauncher)
	// The test decides which pod has which version by deleting pods.
	patch(t, "daemonset/virt-handler", `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
	t.Cleanup(func() {
		patch(t, "daemonset/virt-handler", `{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`)
		handlerOf(t, thisVirt, launcherImage)
		rolledOut(t, "daemonset/virt-handler")
	})
	handlerOf(t, otherVirt, otherLauncher)
	replaceHandler(t, node2, otherVirt)
	t.Run("a virt-handler", func(t *testing.T) {
		ns := newNamespace(t)
		movesThereAndBack(t, bootVM(t, ofBothVersions(newMigratableVM(t, ns, "moves"))))
	})
	ns, knew := newNamespace(t), "" // the identity, before the update, of a guest that outlives it
	keeping, disks := newNamespace(t), []string(nil)
	t.Run("a virt-handler and virt-controller", func(t *testing.T) {
		launchWith(t, otherLauncher)
		t.Cleanup(func() {
			runImage(t, "deployment/virt-controller", thisVirt)
			rolledOut(t, "deployment/virt-controller")
		})
		runImage(t, "deployment/virt-controller", otherVirt)
		rolledOut(t, "deployment/virt-controller")
		g := bootVM(t, ofBothVersions(newMigratableVM(t, ns, "moves")))
		isIn(t, ns, "moves", otherLauncher)
		knew = g.run(self)
		movesThereAndBack(t, g)
		disks = isLaden(t, keeping)
	})
	if knew == "" {
		t.FailNow() // it has logged the reason
	}
	t.Run("a guest whose virt-controller was updated", func(t *testing.T) {
		for _, since := range []string{"the update", "a migration after the update", "a restart after the update"} {
			switch since {
			case "a migration after the update":
				migrated(t, ns, "moves")
				isIn(t, ns, "moves", launcherImage)
			case "a restart after the update":
				restartAndAwait(t, ns, "moves")
			}
			g := login(t, ns, "moves")
			if now := g.run(self); now != knew {
				t.Errorf("since %s the guest sees\n%s\nand saw\n%s", since, now, knew)
			}
		}
	})
	t.Run("a guest with UEFI variables, a TPM and plugged disks", func(t *testing.T) { changesQEMU(t, keeping, disks) })
}

// ofBothVersions gives the VM a machine type that both versions' QEMUs have.
func ofBothVersions(vm *v1.VirtualMachine) *v1.VirtualMachine {
	vm.Spec.Template.Spec.Domain.Machine = &v1.Machine{Type: machinetype.OfOtherBuilds}
	return vm
}

// isLaden starts a guest with all that a QEMU hands to another one, and returns the guest's names of the plugged disks.
func isLaden(t *testing.T, ns string) (disks []string) {
	t.Helper()
	vm, _ := keepingVM(t, ns, "moves")
	if out, err := kubectl(t.Context(), "-n", ns, "patch", "vm", "moves", "--type=merge", "-p",
		`{"spec":{"template":{"spec":{"domain":{"machine":{"type":"`+machinetype.OfOtherBuilds+`"}}}}}}`); err != nil {
		t.Fatalf("giving %s its machine type: %v\n%s", vm.Name, err, out)
	}
	g := startAndLogin(t, ns, "moves")
	for name, bus := range sharedClaims(t, ns) {
		do(t, ns, "addvolume", "moves", "--volume-name="+name, "--bus="+string(bus))
		g.gets(name)
		disks = append(disks, path.Base(g.device(name)))
	}
	g.fillTPM()
	g.run(mounted + "printf '\\007\\000\\000\\000kept' > " + guestVariable + "1")
	return disks
}

// changesQEMU migrates the guest to this version's QEMU, and back to the other's as after a rollback.
func changesQEMU(t *testing.T, ns string, disks []string) {
	t.Helper()
	g := login(t, ns, "moves")
	knew, kept := g.run(self), g.keepJournals(disks...)
	for _, image := range []string{launcherImage, otherLauncher} {
		t.Run(image, func(t *testing.T) {
			launchWith(t, image)
			moved := migrated(t, ns, "moves")
			awaitOneLauncher(t, moved, moved.Status.NodeName)
			isIn(t, ns, "moves", image)
			g := login(t, ns, "moves")
			kept.check(g)
			g.knowsTPM()
			g.sees("its variables", guestVariables, "kept")
			g.sees("itself", self, knew)
		})
	}
	startedOnce(t, ns, "moves")
}

// isIn checks that the guest's pod has the launcher's image.
func isIn(t *testing.T, ns, name, image string) {
	t.Helper()
	awaitVMI(t, ns, name, "the image "+image, func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.LauncherContainerImageVersion == image
	})
}

// handlerOf has the DaemonSet make virt-handlers of an image, whose probe is the launcher's.
func handlerOf(t *testing.T, image, launcher string) {
	t.Helper()
	patch(t, "daemonset/virt-handler", fmt.Sprintf(`{"spec":{"template":{"spec":{
		"initContainers":[{"name":"probe-node","image":%q}], "containers":[{"name":"virt-handler","image":%q}]}}}}`, launcher, image))
}

// patch changes an object of Drydock's installation.
func patch(t *testing.T, object, change string) {
	t.Helper()
	if out, err := kubectl(context.Background(), "-n", "kubevirt", "patch", object, "--type", "strategic", "-p", change); err != nil {
		t.Fatalf("changing %s: %v\n%s", object, err, out)
	}
}

func runImage(t *testing.T, object, image string) {
	t.Helper()
	patch(t, object, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":%q}]}}}}`, filepath.Base(object), image))
}

func rolledOut(t *testing.T, object string) {
	t.Helper()
	if out, err := kubectl(context.Background(), "-n", "kubevirt", "rollout", "status", object, "--timeout="+rolloutTime); err != nil {
		t.Fatalf("%s is not rolled out: %v\n%s", object, err, out)
	}
}

func replaceHandler(t *testing.T, node, image string) {
	t.Helper()
	handlers := func() []corev1.Pod {
		var list corev1.PodList
		if err := cluster.client.List(t.Context(), &list, client.InNamespace("kubevirt"), client.MatchingLabels{"kubevirt.io": "virt-handler"}); err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	for _, pod := range handlers() {
		if pod.Spec.NodeName == node {
			deleteObject(t, &pod)
		}
	}
	eventually(t, "virt-handler of "+image+" on "+node, func(context.Context) error {
		for _, pod := range handlers() {
			if c := pod.Status.ContainerStatuses; pod.Spec.NodeName == node && len(c) > 0 && c[0].Ready && c[0].Image == image {
				return nil
			}
		}
		return fmt.Errorf("it is not there or not ready")
	})
}
