//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// TestDiagnoseNamesPlantedFaults plants three faults beside a guest that is well. Only a cluster has the conditions, events and
// logs as Kubernetes and Drydock really write them, and the rights with which they are read.
func TestDiagnoseNamesPlantedFaults(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	const secret = "Tr0ub4dor-und-3"
	plantFaults(t, ns, secret)

	folder, attempt := t.TempDir(), 0
	var out, page string
	eventually(t, "the diagnosis to name the three faults", func(ctx context.Context) error {
		attempt++
		out = filepath.Join(folder, fmt.Sprint(attempt))
		var err error
		page, err = virtctl(ctx, "adm", "diagnose", "-n", ns, "-o", out)
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.ExitCode() != 2 {
			return fmt.Errorf("virtctl adm diagnose: %w\n%s", err, page)
		}
		for _, fault := range []string{"VM " + ns + "/no-image: VM waits", "VM " + ns + "/no-node: VM waits", "DataVolume " + ns + "/no-source: DataVolume fails"} {
			if !strings.Contains(page, fault) {
				return fmt.Errorf("the diagnosis does not name %q:\n%s", fault, page)
			}
		}
		return nil
	})
	if strings.Contains(page, ns+"/well") {
		t.Errorf("something is found wrong in a guest that is well:\n%s", page)
	}
	collected(t, out, ns, secret)
	ofOneVM(t, filepath.Join(folder, "one"), ns, secret)
}

func plantFaults(t *testing.T, ns, secret string) {
	t.Helper()
	well := newVMI(ns, "well")
	addDisk(well, v1.Disk{Name: "init", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
		v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "#cloud-config\npassword: " + secret + "\n"}})
	well.Annotations = map[string]string{"example.com/note": secret}
	create(t, newVM(well, v1.RunStrategyAlways))

	noImage := newVMI(ns, "no-image")
	noImage.Spec.Volumes[0].ContainerDisk.Image = "registry.invalid/nothing:1"
	create(t, newVM(noImage, v1.RunStrategyAlways))
	noNode := newVMI(ns, "no-node")
	noNode.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "nowhere"}
	create(t, newVM(noNode, v1.RunStrategyAlways))
	create(t, &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "no-source", Annotations: map[string]string{layout.AnnImmediate: "true"}},
		Spec: cdiv1.DataVolumeSpec{
			Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://127.0.0.1:9/disk?key=" + secret}},
			Storage: &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")},
			}},
		},
	})
	awaitRunning(t, ns, "well")
}

// ofOneVM checks the diagnosis and the description of the VM that is well.
func ofOneVM(t *testing.T, out, ns, secret string) {
	t.Helper()
	if page, err := virtctl(t.Context(), "adm", "diagnose", "-n", ns, "--vm", "well", "-o", out); err != nil && !strings.Contains(page, "Found wrong") {
		t.Errorf("virtctl adm diagnose --vm: %v\n%s", err, page)
	}
	toldByVirtLauncher(t, out, ns)

	describing, err := virtctl(t.Context(), "describe", "vm", "well", "-n", ns)
	if err != nil || !strings.Contains(describing, "Waits for     nothing\n") || strings.Contains(describing, secret) {
		t.Errorf("virtctl describe: %v\n%s", err, describing)
	}
}

// toldByVirtLauncher checks the arguments and the state of QEMU.
func toldByVirtLauncher(t *testing.T, out, ns string) {
	t.Helper()
	for file, parts := range map[string][]string{
		"qemu-arguments.txt": {"-machine type="},
		"qemu-state.yaml":    {"runState: running", "residentKiB: ", "memoryBytes: ", "cpuMicroseconds: ", "device: "},
	} {
		found, err := filepath.Glob(filepath.Join(out, "namespaces", ns, "pods", "virt-launcher-well-*", "compute", file))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s is in %v (%v)", file, found, err)
		}
		text, err := os.ReadFile(found[0])
		for _, part := range parts {
			if err != nil || !strings.Contains(string(text), part) {
				t.Errorf("%s lacks %q: %v\n%s", file, part, err, text)
			}
		}
	}
}

// collected checks that the objects and logs are there, and the secret nowhere.
func collected(t *testing.T, out, ns, secret string) {
	t.Helper()
	for _, pattern := range []string{
		"namespaces/" + ns + "/kubevirt.io/virtualmachines/well.yaml", "namespaces/" + ns + "/pods/virt-launcher-well-*/compute/compute/logs/current.log",
		"namespaces/kubevirt/apps/deployments/virt-api.yaml", "namespaces/kubevirt/pods/virt-handler-*/virt-handler/virt-handler/logs/current.log",
		"namespaces/kubevirt/diagnose.drydock.dev/authorities/kubevirt-ca.yaml", "namespaces/" + ns + "/core/events/*.yaml", "cluster-scoped-resources/core/nodes/node1.yaml",
	} {
		if found, err := filepath.Glob(filepath.Join(out, pattern)); err != nil || len(found) == 0 {
			t.Errorf("the diagnosis lacks %s (%v)", pattern, err)
		}
	}
	err := filepath.WalkDir(out, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), secret) {
			t.Errorf("%s has the secret", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
