//go:build e2e

package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"
)

// TestGuestSeesTheMachineThatWasAskedFor boots one guest with every field in its manifest. test/machine covers
// QEMU's part; here a kubelet puts images, Secrets and the pod's network where QEMU finds them.
func TestGuestSeesTheMachineThatWasAskedFor(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	create(t, toolsPod(ns, "peer"))
	servesPort80(t, ns, "machine")
	newAttachment(t, ns, "blue", map[string]any{"cniVersion": "1.0.0", "name": "blue", "type": "bridge", "bridge": "blue"})
	create(t, machineWithEverything(t, ns))
	inTurn(t,
		chapter{"its console shows what was missed", func(t *testing.T) { consoleShowsWhatWasMissed(t, ns) }},
		chapter{"it sees the machine", func(t *testing.T) { seesItsMachine(t, login(t, ns, "machine")) }},
		chapter{"the status tells the same", func(t *testing.T) { statusMatchesGuest(t, login(t, ns, "machine")) }},
		chapter{"it is Ready when it answers by HTTP", func(t *testing.T) { awaitVMI(t, ns, "machine", "condition Ready", ready) }},
		chapter{"its node says what it runs with", func(t *testing.T) { nodeSaysWhatItRunsWith(t, login(t, ns, "machine")) }},
		chapter{"it and pods reach each other", func(t *testing.T) { reachesPods(t, login(t, ns, "machine")) }},
		chapter{"a port is forwarded to it", func(t *testing.T) { portIsForwarded(t, ns) }},
		chapter{"pods that pass for its own are refused", func(t *testing.T) { forgedPodsAreRefused(t, awaitRunning(t, ns, "machine")) }},
		chapter{"its cards are told from the devices on them", func(t *testing.T) { cardsAreToldFromDevices(t, login(t, ns, "machine")) }},
	)
}

const machineUUID = "5d307ca9-b3ef-428c-8861-06e72d69f223"

// machineWithEverything returns a VMI with disks on all buses and with every object that the kubelet can give a pod.
func machineWithEverything(t *testing.T, ns string) *v1.VirtualMachineInstance {
	t.Helper()
	create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "credentials"},
		StringData: map[string]string{"token": "from-the-secret"},
	})

	vmi := newVMI(ns, "machine")
	vmi.Labels = map[string]string{"app": "machine"}
	vmi.Spec.ReadinessProbe = &v1.Probe{Handler: v1.Handler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}, PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 1}
	vmi.Spec.Volumes[0].ContainerDisk.Image = guestFullImage
	*vmi.Spec.Domain.Memory.Guest = resource.MustParse("192Mi")
	vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 1, Cores: 2, Threads: 1}
	vmi.Spec.Domain.Firmware = &v1.Firmware{UUID: types.UID(machineUUID), Serial: "SN-0042"}
	vmi.Spec.Domain.Devices.Disks[0].Serial = "ROOT-1"
	addDisk(vmi, v1.Disk{
		Name: "scratch", Serial: "SCRATCH-2",
		DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}},
	}, v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("64Mi")}})
	addDisk(vmi, v1.Disk{
		Name: "sata", Serial: "SATA-3",
		DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSATA}},
	}, v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("32Mi")}})
	addDisk(vmi, v1.Disk{
		Name: "secret", Serial: "SECRET-4",
		DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
	}, v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "credentials"}})
	addDisk(vmi, v1.Disk{
		Name:       "seed",
		DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}},
	}, v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{
		UserDataBase64: base64.StdEncoding.EncodeToString([]byte("#cloud-config\nhostname: named-by-cloud-init\n")),
	}})
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "default", MacAddress: "02:00:00:aa:bb:cc",
		InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
	}, {
		Name: "blue", MacAddress: "02:00:00:aa:bb:dd",
		InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}},
	}}
	vmi.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork(),
		{Name: "blue", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "blue"}}}}
	return vmi
}

func seesItsMachine(t *testing.T, g *guest) {
	t.Helper()
	g.sees("UUID", "guestinfo uuid", machineUUID)
	g.sees("serial number", "cat /sys/class/dmi/id/product_serial", "SN-0042")
	g.sees("number of CPUs", "grep -c ^processor /proc/cpuinfo", "2")
	g.sees("hostname", "hostname", "named-by-cloud-init")
	g.sees("MAC address", "cat /sys/class/net/eth0/address", "02:00:00:aa:bb:cc")
	if kib := g.memoryKiB(); kib < 130<<10 || kib > 192<<10 {
		t.Errorf("the guest has %d KiB of memory, asked for 192 MiB", kib)
	}
	if d := g.diskBySerial("SCRATCH-2"); d.bytes != 64<<20 {
		t.Errorf("disk scratch has %d bytes in the guest, asked for 64 MiB", d.bytes)
	}
	if d := g.diskBySerial("SATA-3"); d.bytes != 32<<20 {
		t.Errorf("disk sata has %d bytes in the guest, asked for 32 MiB", d.bytes)
	}
	g.diskBySerial("ROOT-1")
	secret := g.diskBySerial("SECRET-4")
	g.run("mkdir -p /tmp/secret && mount -o ro /dev/" + secret.name + " /tmp/secret")
	g.sees("secret's content", "cat /tmp/secret/token", "from-the-secret")
}

func statusMatchesGuest(t *testing.T, g *guest) {
	vmi := awaitVMI(t, g.namespace, g.name, "an interface with an address", func(vmi *v1.VirtualMachineInstance) bool {
		return len(vmi.Status.Interfaces) == 2 && vmi.Status.Interfaces[0].IP != ""
	})
	if got := vmi.Status.Interfaces[0].MAC; got != "02:00:00:aa:bb:cc" {
		t.Errorf("status says the MAC address is %s", got)
	}
	pod := launcherPod(t, vmi)
	if got := vmi.Status.Interfaces[0].IP; got != pod.Status.PodIP {
		t.Errorf("status says the address is %s, the pod's is %s", got, pod.Status.PodIP)
	}
	if vmi.Status.NodeName != pod.Spec.NodeName {
		t.Errorf("status says the node is %s, the pod's is %s", vmi.Status.NodeName, pod.Spec.NodeName)
	}
	g.sees("its NIC, with an address by DHCP", "guestinfo nics | head -n 1 | cut -d' ' -f1-3", "eth0 02:00:00:aa:bb:cc 10.0.2.2")
}

// cardsAreToldFromDevices makes a bond of both NICs, a VLAN on it, and a bridge with an address on that. All of them get
// the MAC address of the second NIC. The guest is not reachable by its network afterwards.
func cardsAreToldFromDevices(t *testing.T, g *guest) {
	g.run("modprobe bonding") // which makes bond0
	for _, card := range []string{"eth1", "eth0"} {
		// All cards of a bond have its MTU, and that of the pods' network is smaller.
		g.sees(card+" in the bond", "ip link set bond0 mtu $(cat /sys/class/net/eth0/mtu) && ip link set "+card+" down && ip link set "+card+" master bond0; cat /sys/class/net/"+card+"/address", "02:00:00:aa:bb:dd")
	}
	g.run("ip link add link bond0 name bond0.7 type vlan id 7 && ip link add br0 type bridge && ip link set bond0.7 master br0 && ip -6 addr add fd00:7::9/64 dev br0")
	const want = "default=eth0 02:00:00:aa:bb:cc, blue=eth1 02:00:00:aa:bb:dd, =bond0 02:00:00:aa:bb:dd, =bond0.7 02:00:00:aa:bb:dd, =br0 02:00:00:aa:bb:dd fd00:7::9"
	var got string
	awaitVMI(t, g.namespace, g.name, "the devices "+want, func(vmi *v1.VirtualMachineInstance) bool {
		var list []string
		for _, i := range vmi.Status.Interfaces {
			text := i.Name + "=" + i.InterfaceName + " " + i.MAC
			if i.Name == "" && i.IP != "" {
				text += " " + i.IP
			}
			list = append(list, text)
		}
		if now := strings.Join(list, ", "); now != got {
			got = now
			t.Log(got)
		}
		return got == want
	})
}

// fromKernel makes a VMI boot from a kernel in an image, without a disk.
func fromKernel(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Domain.Devices.Disks, vmi.Spec.Volumes = nil, nil
	vmi.Spec.Domain.Firmware = &v1.Firmware{KernelBoot: &v1.KernelBoot{
		KernelArgs: "console=ttyS0 no_timer_check cryptomgr.notests",
		Container:  &v1.KernelBootContainer{Image: guestKernelImage, KernelPath: "/boot/vmlinuz", InitrdPath: "/boot/initrd.img"},
	}}
}

// sees repeats a command in the guest until it prints want: disks and addresses appear a moment late. The command may
// run many times.
func (g *guest) sees(what, command, want string) {
	g.t.Helper()
	eventually(g.t, fmt.Sprintf("%s in the guest %s", what, g.name), func(context.Context) error {
		got, err := g.try(command)
		if err == nil && got != want {
			err = fmt.Errorf("got %q, want %q", got, want)
		}
		return err
	})
}

// memoryKiB returns MemTotal in the guest: its memory less the kernel's own.
func (g *guest) memoryKiB() int {
	g.t.Helper()
	kib, err := strconv.Atoi(g.run("awk '/^MemTotal/ {print $2}' /proc/meminfo"))
	if err != nil {
		g.t.Fatalf("reading the guest's memory: %v", err)
	}
	return kib
}
