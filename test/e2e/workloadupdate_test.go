//go:build e2e

package e2e

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/object/condition"
)

// A release's launcher image, and the same image under another release's name.
const (
	launcherImage = "drydock.dev/virt-launcher:devel"
	newerLauncher = "drydock.dev/virt-launcher:newer"
)

// TestGuestsAreBroughtIntoNewerLaunchers makes virt-controller use another launcher image, as an upgrade does. The
// guests run on in their pods and must be counted as outdated; then those that can must migrate, and the others must be
// evicted and started again, until none is outdated. Not parallel: every guest of the cluster is outdated meanwhile.
// The rules' tests cover the order; only here a guest moves into another image's pod.
func TestGuestsAreBroughtIntoNewerLaunchers(t *testing.T) {
	ns := newNamespace(t)
	loadAs(t, filepath.Join("..", "..", "build", "images", "virt-launcher.tar"), launcherImage, newerLauncher)
	moves := bootVM(t, newMigratableVM(t, ns, "moves"))
	bootVM(t, newVM(onPodBridge(newVMI(ns, "restarts")), v1.RunStrategyAlways))
	awaitMigratable(t, ns, "moves")
	awaitVMI(t, ns, "restarts", "LiveMigratable False", func(vmi *v1.VirtualMachineInstance) bool {
		c := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceIsMigratable)
		return c != nil && c.Status == "False"
	})
	bootID, uptime := moves.bootID(), moves.uptime()
	restarts := instanceUID(t, ns, "restarts")

	configure(t, `{"spec":{"workloadUpdateStrategy":{"batchEvictionInterval":"1s","workloadUpdateMethods":[]}}}`,
		`{"spec":{"workloadUpdateStrategy":{"batchEvictionInterval":null,"workloadUpdateMethods":["LiveMigrate"]}}}`)
	launchWith(t, newerLauncher)
	for _, name := range []string{"moves", "restarts"} {
		awaitVMI(t, ns, name, "the label of an outdated one", outdated)
	}
	awaitOutdated(t, 2)

	configureFurther(t, `{"spec":{"workloadUpdateStrategy":{"workloadUpdateMethods":["LiveMigrate","Evict"]}}}`)
	awaitNextInstance(t, ns, "restarts", restarts)
	for _, name := range []string{"moves", "restarts"} {
		vmi := awaitVMI(t, ns, name, "a pod of the newer image, and no label", func(vmi *v1.VirtualMachineInstance) bool {
			return vmi.Status.LauncherContainerImageVersion == newerLauncher && vmi.Status.Phase == v1.Running && !outdated(vmi)
		})
		awaitOneLauncher(t, vmi, vmi.Status.NodeName)
		if image := launcherPod(t, vmi).Spec.Containers[0].Image; image != newerLauncher {
			t.Errorf("%s runs in a pod of %s", name, image)
		}
	}
	awaitOutdated(t, 0)
	moves = login(t, ns, "moves")
	if now := moves.uptime(); moves.bootID() != bootID || now <= uptime {
		t.Errorf("the guest that can migrate was started again: its uptime is %v, and was %v", now, uptime)
	}
	startedOnce(t, ns, "moves")
	startedOnce(t, ns, "restarts")
}

// onPodBridge gives a guest the address of its pod, so that it can't migrate.
func onPodBridge(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	vmi.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}},
	}}
	return vmi
}

func outdated(vmi *v1.VirtualMachineInstance) bool {
	_, labeled := vmi.Labels[v1.OutdatedLauncherImageLabel]
	return labeled
}

// Guests of earlier tests may take a moment to be gone.
func awaitOutdated(t *testing.T, want int) {
	t.Helper()
	await(t, kubeVirt(), &v1.KubeVirtList{}, fmt.Sprintf("%d outdated guests", want), func(kv *v1.KubeVirt) bool {
		n := kv.Status.OutdatedVirtualMachineInstanceWorkloads
		return n != nil && *n == want
	})
}

// launchWith makes virt-controller use a launcher image until the test ends.
func launchWith(t *testing.T, image string) {
	t.Helper()
	set := func(ctx context.Context, image string) error {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: "virt-controller"}}
		if err := cluster.client.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		before := d.DeepCopy()
		args := d.Spec.Template.Spec.Containers[0].Args
		for i := range args {
			if strings.HasPrefix(args[i], "--launcher-image=") {
				args[i] = "--launcher-image=" + image
			}
		}
		if err := cluster.client.Patch(ctx, d, client.MergeFrom(before)); err != nil {
			return err
		}
		out, err := kubectl(ctx, "-n", "kubevirt", "rollout", "status", "deployment/virt-controller", "--timeout="+rolloutTime)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	t.Cleanup(sync.OnceFunc(func() {
		if err := set(context.Background(), launcherImage); err != nil {
			t.Errorf("having virt-controller use the image %s again: %v", launcherImage, err)
		}
	}))
	if err := set(t.Context(), image); err != nil {
		t.Fatalf("having virt-controller use the image %s: %v", image, err)
	}
}

// loadAs loads an archive whose image has another name in the cluster.
func loadAs(t *testing.T, archive, image, name string) {
	t.Helper()
	as := filepath.Join(t.TempDir(), "image.tar")
	if err := renamed(archive, as, image, name); err != nil {
		t.Fatalf("naming the image %s in %s %s: %v", image, archive, name, err)
	}
	if out, err := output(t.Context(), "drydock", "image", "load", as); err != nil || !strings.Contains(out, name) {
		t.Fatalf("drydock image load: %v\n%s", err, out)
	}
}

// renamed copies an archive in the OCI's layout with another image name in its index.
func renamed(from, to, before, after string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	copied := tar.NewWriter(out)
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return copied.Close()
		}
		if err != nil {
			return err
		}
		var content io.Reader = r
		if header.Name == "index.json" {
			index, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			text := strings.ReplaceAll(string(index), before, after)
			header.Size, content = int64(len(text)), strings.NewReader(text)
		}
		if err := copied.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.Copy(copied, content); err != nil {
			return err
		}
	}
}
