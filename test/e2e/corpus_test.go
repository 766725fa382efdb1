//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/test/corpus"
)

// guestWords maps the first word of an expectation in a corpus manifest to a function. From the other words it returns
// a command for the guest and the output that the command must print.
var guestWords = map[string]func(string) (command, want string){
	"cpus":     printed("guestinfo cpus"),
	"firmware": printed("guestinfo firmware"),
	"uuid":     printed("guestinfo uuid"),
	"serial":   printed("guestinfo serial"),
	"hostname": printed("hostname"),
	"nics":     printed("guestinfo nics | wc -l"),
	"mac":      printed("cat /sys/class/net/eth0/address"),
	"carrier":  printed("cat /sys/class/net/eth0/carrier"),
	"address":  printed("ip -o -4 addr show eth0 | awk '{print $4}'"),
	"disks":    printed("guestinfo disks | grep -c ' disk '"),
	"bus":      printed("guestinfo disks | grep ' disk ' | head -n 1 | cut -d' ' -f4"),
	"chassis":  printed("cat /sys/class/dmi/id/chassis_asset_tag"),
	"watchdog": printed("cat /sys/class/watchdog/watchdog0/identity"),
	// Any answer of a TPM 2 begins with these bytes.
	"tpm":     printed("tpmsend 80010000000e0000016901500000 | cut -c1-4 | sed s/8001/answers/"),
	"ssh-key": printed("cut -d' ' -f2 /root/.ssh/authorized_keys"),
	"label":   func(label string) (string, string) { return "test -b " + labeled(label) + " && echo found", "found" },
	"cmdline": func(word string) (string, string) { return "grep -o " + word + " /proc/cmdline", word },
	// The guest sees the requested MiB less the memory that firmware and kernel keep.
	"memory": func(mebibytes string) (string, string) {
		return fmt.Sprintf("awk '/^MemTotal/ {print ($2 <= %[1]s*1024 && $2 > %[1]s*1024/2) ? \"fits\" : $2}' /proc/meminfo", mebibytes), "fits"
	},
	"bytes-of-disk": func(words string) (string, string) {
		serial, size, _ := strings.Cut(words, " ")
		return "guestinfo disks | awk '$3 == \"" + serial + "\" {print $2}'", size
	},
	"file-on-disk": func(words string) (string, string) {
		serial, rest, _ := strings.Cut(words, " ")
		return fileOn("/dev/$(guestinfo disks | awk '$3 == \""+serial+"\" {print $1}')", rest)
	},
	"file-on-label": func(words string) (string, string) {
		label, rest, _ := strings.Cut(words, " ")
		return fileOn(labeled(label), rest)
	},
}

func printed(command string) func(string) (string, string) {
	return func(want string) (string, string) { return command, want }
}

// labeled finds the disk by the label of its ISO 9660 file system, at its fixed offset.
func labeled(label string) string {
	return "$(for d in $(guestinfo disks | cut -d' ' -f1); do dd if=/dev/$d bs=1 skip=32808 count=32 2>/dev/null | grep -qi " +
		label + " && echo /dev/$d; done)"
}

// words are a file's name and its content.
func fileOn(device, words string) (command, want string) {
	name, content, _ := strings.Cut(words, " ")
	return "mkdir -p /tmp/medium && mount -t iso9660 -o ro " + device + " /tmp/medium && cat /tmp/medium/" + name + "; umount /tmp/medium", content
}

// seenNowhereElse lists the manifests whose guests see something that a kubelet puts into their pods and that no other
// test's guest sees. The rules' tables, test/machine and other tests here cover the rest.
var seenNowhereElse = []string{
	"cloudinit-static-address", "disk-object-volumes", "harvester-linux-network-data", "names-in-dns", "nic-link-down", "sysprep",
}

// TestGuestsOfTheCorpusSeeWhatTheirManifestsSay boots each corpus manifest with expectations, with the test guest
// in place of its images and claims. Only here a kubelet puts files into their pods.
func TestGuestsOfTheCorpusSeeWhatTheirManifestsSay(t *testing.T) {
	t.Parallel()
	all, err := corpus.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if len(m.Guest) == 0 {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains(seenNowhereElse, m.Name) {
				onlyInTestAll(t)
			}
			ns := newNamespace(t)
			name := applyWithTestGuest(t, ns, m)
			awaitRunning(t, ns, name)
			g := login(t, ns, name)
			for _, fact := range m.Guest {
				word, known := guestWords[fact.Word]
				if !known {
					t.Fatalf("nothing is known of the word %q", fact.Word)
				}
				command, want := word(fact.Value)
				g.sees(fact.Word, command, want)
			}
		})
	}
}

func applyWithTestGuest(t *testing.T, ns string, m corpus.Manifest) string {
	t.Helper()
	image := guestImage
	if m.HardwareDrivers {
		image = guestFullImage
	}
	var machine string
	for _, object := range decode(t, m) {
		object.SetNamespace(ns)
		switch object.GetKind() {
		case "VirtualMachine":
			vm := &v1.VirtualMachine{}
			convert(t, object, vm)
			vm.Spec.Running, vm.Spec.RunStrategy = nil, new(v1.RunStrategyAlways)
			vm.Spec.DataVolumeTemplates = nil
			bootTestGuest(&vm.Spec.Template.Spec, image)
			machine = vm.Name
			create(t, vm)
		case "VirtualMachineInstance":
			vmi := &v1.VirtualMachineInstance{}
			convert(t, object, vmi)
			bootTestGuest(&vmi.Spec, image)
			machine = vmi.Name
			create(t, vmi)
		default:
			create(t, object)
		}
	}
	return machine
}

func decode(t *testing.T, m corpus.Manifest) []*unstructured.Unstructured {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(m.Text), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatalf("decoding %s: %v", m.Name, err)
		}
		objects = append(objects, object)
	}
}

func convert(t *testing.T, object *unstructured.Unstructured, into client.Object) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		t.Fatalf("converting %s: %v", object.GetName(), err)
	}
}

// bootTestGuest replaces the boot image with the test guest, and all other claims and images with empty disks.
func bootTestGuest(spec *v1.VirtualMachineInstanceSpec, image string) {
	spec.TerminationGracePeriodSeconds = new(int64(0))
	if f := spec.Domain.Firmware; f != nil && f.KernelBoot != nil {
		f.KernelBoot.Container.Image = guestKernelImage
	}
	isImage := func(v v1.Volume) bool {
		return v.ContainerDisk != nil || v.PersistentVolumeClaim != nil || v.DataVolume != nil
	}
	root := slices.IndexFunc(spec.Volumes, isImage)
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i]; {
		case i == root:
			v.VolumeSource = v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: image}}
		case isImage(*v):
			v.VolumeSource = v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("32Mi")}}
		}
	}
}
