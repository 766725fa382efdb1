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

// guestWords are the words by which a manifest of the corpus says what its guest sees: a
// command for the guest, of the words after it, and what that prints.
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
	// The first two bytes of any answer of a TPM 2.
	"tpm":     printed("tpmsend 80010000000e0000016901500000 | cut -c1-4 | sed s/8001/answers/"),
	"ssh-key": printed("cut -d' ' -f2 /root/.ssh/authorized_keys"),
	"label":   func(label string) (string, string) { return "test -b " + labeled(label) + " && echo found", "found" },
	"cmdline": func(word string) (string, string) { return "grep -o " + word + " /proc/cmdline", word },
	// What was asked for, in MiB, less what firmware and kernel keep for themselves.
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

// labeled is the disk whose file system of an optical disc has a label: at the place that ISO 9660
// has for it.
func labeled(label string) string {
	return "$(for d in $(guestinfo disks | cut -d' ' -f1); do dd if=/dev/$d bs=1 skip=32808 count=32 2>/dev/null | grep -qi " +
		label + " && echo /dev/$d; done)"
}

// fileOn reads a file on a device; words are its name and what is in it.
func fileOn(device, words string) (command, want string) {
	name, content, _ := strings.Cut(words, " ")
	return "mkdir -p /tmp/medium && mount -t iso9660 -o ro " + device + " /tmp/medium && cat /tmp/medium/" + name + "; umount /tmp/medium", content
}

// seenNowhereElse are the manifests whose guests see what a kubelet has put into their pods and no guest of another test
// sees. What the others see, the rules' tables say, and guests of test/machine and of other tests here.
var seenNowhereElse = []string{
	"cloudinit-static-address", "disk-object-volumes", "harvester-linux-network-data", "names-in-dns", "nic-link-down", "sysprep",
}

// TestGuestsOfTheCorpusSeeWhatTheirManifestsSay boots each manifest of the corpus that says
// what its guest sees, with the test guest in place of its images and claims.
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

// applyWithTestGuest applies a manifest that boots the test guest, and returns the name of
// its VMI.
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

// bootTestGuest puts an image of the test guest in place of what a manifest boots, and empty
// disks in place of its further claims and images.
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
