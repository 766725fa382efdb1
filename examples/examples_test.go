// Package examples has manifests for users and, in this file, the test that Drydock accepts each: it is read
// strictly, sets only supported fields, and passes validation. It owns no code that runs.
package examples

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/api/defaults"
	"drydock.dev/drydock/internal/api/validate"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/virtctl"
	"drydock.dev/drydock/internal/virtctl/env"
)

func TestDrydockTakesEveryExample(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("found the examples %v (%v), want at least six", files, err)
	}
	ofMaintenance, err := filepath.Glob("maintenance/*.yaml")
	if err != nil || len(ofMaintenance) < 4 {
		t.Fatalf("found the examples of maintenance %v (%v), want at least four", ofMaintenance, err)
	}
	files = append(files, ofMaintenance...)
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, document := range documents(t, text) {
				for _, problem := range check(t, document) {
					t.Error(problem)
				}
			}
		})
	}
}

// TestDrydockTakesWhatVirtctlCreates checks the manifests of virtctl create by the same rules.
func TestDrydockTakesWhatVirtctlCreates(t *testing.T) {
	for _, arguments := range []string{
		"",
		"--name=db --memory=4Gi --cpus=4 --run-strategy=Manual --volume-pvc=src:db,bootorder:1",
		"--name=web --volume-containerdisk=src:drydock.dev/test-guest:devel --user=guest --ssh-key=ssh-ed25519",
		"--name=drive --cloud-init=configdrive --cloud-init-user-data=I2Nsb3VkLWNvbmZpZwo=",
	} {
		t.Run(arguments, func(t *testing.T) {
			var out bytes.Buffer
			e := &env.Env{Out: &out, Err: io.Discard, Program: "virtctl", Flags: genericclioptions.NewConfigFlags(true)}
			root := virtctl.New(e)
			root.SetArgs(append([]string{"create", "vm"}, strings.Fields(arguments)...))
			if err := root.ExecuteContext(t.Context()); err != nil {
				t.Fatalf("creating the manifest: %v", err)
			}
			for _, problem := range check(t, out.Bytes()) {
				t.Error(problem)
			}
		})
	}
}

func documents(t *testing.T, text []byte) [][]byte {
	t.Helper()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	var all [][]byte
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, document)
	}
}

// check reads one object strictly, as kubectl apply does, and returns admission's errors.
func check(t *testing.T, document []byte) field.ErrorList {
	t.Helper()
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		t.Fatalf("reading the kind: %v", err)
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "kubevirt.io/v1 VirtualMachine":
		vm := strictly[v1.VirtualMachine](t, document)
		return validate.VM(vm, nil, clusterconfig.Settings{})
	case "kubevirt.io/v1 VirtualMachineInstance":
		vmi := strictly[v1.VirtualMachineInstance](t, document)
		return validate.VMI(vmi, clusterconfig.Settings{})
	case "kubevirt.io/v1 VirtualMachineInstanceReplicaSet":
		rs := strictly[v1.VirtualMachineInstanceReplicaSet](t, document)
		return validate.ReplicaSet(rs, nil, clusterconfig.Settings{})
	case "v1 Service":
		strictly[corev1.Service](t, document)
	case "v1 PersistentVolume":
		strictly[corev1.PersistentVolume](t, document)
	case "v1 PersistentVolumeClaim":
		strictly[corev1.PersistentVolumeClaim](t, document)
	case "batch/v1 Job":
		return maintains(&strictly[batchv1.Job](t, document).Spec.Template)
	case "batch/v1 CronJob":
		return maintains(&strictly[batchv1.CronJob](t, document).Spec.JobTemplate.Spec.Template)
	default:
		t.Fatalf("the test does not know the kind %s %s", kind.APIVersion, kind.Kind)
	}
	return nil
}

func maintains(template *corev1.PodTemplateSpec) field.ErrorList {
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm-datavolume"}}
	defaults.MaintenancePod(pod, vm)
	if lock.For(pod) != vm.Name {
		return field.ErrorList{field.Required(field.NewPath("metadata", "labels"), "the example is for no VM of the examples")}
	}
	return validate.MaintenancePod(pod, vm)
}

func strictly[T any](t *testing.T, document []byte) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict(document, object); err != nil {
		t.Fatalf("reading it strictly: %v", err)
	}
	return object
}
