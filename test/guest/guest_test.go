package guest_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/iso"
	"drydock.dev/drydock/test/guest"
	"drydock.dev/drydock/test/shipped"
)

const uuid = "5d307ca9-b3ef-428c-8861-06e72d69f223"

func firmwareOf(t *testing.T, files guest.Files, way string) []string {
	t.Helper()
	disk := []string{
		"-drive", "if=none,id=boot,snapshot=on,file=" + files.Disk,
		"-device", "virtio-blk-pci,drive=boot,bootindex=1,serial=boot-disk",
	}
	switch way {
	case "kernel":
		return []string{"-kernel", files.Kernel, "-initrd", files.Initrd, "-append", "console=ttyS0 quiet no_timer_check cryptomgr.notests"}
	case "BIOS":
		return disk
	default:
		variables, err := os.ReadFile(shipped.File(t, layout.UEFIVars))
		if err != nil {
			t.Fatalf("reading the UEFI firmware (apt-get install ovmf): %v", err)
		}
		own := filepath.Join(t.TempDir(), "vars.fd")
		if err := os.WriteFile(own, variables, 0o600); err != nil {
			t.Fatal(err)
		}
		return append(disk,
			"-drive", "if=pflash,unit=0,format=raw,readonly=on,file="+shipped.File(t, layout.UEFICode),
			"-drive", "if=pflash,unit=1,format=raw,file="+own)
	}
}

func TestTheGuestTellsItsMachineAndObeysThePowerButton(t *testing.T) {
	files := buildGuest(t, guest.Lean)
	data := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(data, make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ way, firmware string }{
		{"kernel", "bios"}, {"BIOS", "bios"}, {"UEFI", "efi"},
	} {
		t.Run(test.way, func(t *testing.T) {
			began := time.Now()
			m := start(t, append(firmwareOf(t, files, test.way),
				"-m", "256", "-smp", "2,sockets=1,cores=2,threads=1", "-uuid", uuid,
				"-smbios", "type=1,serial=SN-7",
				"-netdev", "user,id=net0,net=10.9.8.0/24", "-device", "virtio-net-pci,romfile=,netdev=net0,mac=02:00:00:00:00:07,host_mtu=1400",
				"-device", "virtio-scsi-pci", "-drive", "if=none,id=data,format=raw,snapshot=on,file="+data,
				"-device", "scsi-hd,drive=data,serial=data-disk",
			)...)
			match, err := m.console.Expect(m.ctx, regexp.MustCompile(`drydock guest ready: (\S+) uuid=(\S+)\n`))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("ready after %.1f s", time.Since(began).Seconds())
			if match[1] != "guest" || match[2] != uuid {
				t.Errorf("the guest said %q", match[0])
			}
			m.login()
			m.sees("guestinfo uuid", uuid)
			m.sees("guestinfo serial", "SN-7")
			m.sees("guestinfo firmware", test.firmware)
			m.sees("guestinfo cpus", "2 sockets=1 cores=2 threads=1")
			m.sees("guestinfo hostname", "guest")
			m.sees("guestinfo nics | cut -d' ' -f1-6", "eth0 02:00:00:00:00:07 10.9.8.15 1400 up virtio_net")
			m.sees("guestinfo disks | grep sda | cut -d' ' -f1-6", "sda 8388608 data-disk scsi rw disk")
			if test.way != "kernel" {
				m.sees("guestinfo disks | grep vda | cut -d' ' -f1-6", "vda 67108864 boot-disk virtio rw disk")
			}
			m.monitorRuns("system_powerdown", nil)
			if _, err := m.console.Expect(m.ctx, regexp.MustCompile("guest: powering off\n")); err != nil {
				t.Error(err)
			}
			m.ends()
		})
	}
}

// KubeVirt offers these devices beside virtio.
func TestTheFullKernelKnowsTheDevicesThatTheLeanKernelDoesNot(t *testing.T) {
	files := buildGuest(t, guest.Full)
	m := start(t, "-m", "192",
		"-drive", "if=none,id=boot,snapshot=on,file="+files.Disk, "-device", "ide-hd,drive=boot,bus=ide.0,serial=boot-disk",
		"-netdev", "user,id=net0,hostname=named-by-dhcp", "-device", "e1000e,romfile=,netdev=net0,mac=02:00:00:00:00:07",
		"-netdev", "user,id=net1", "-device", "e1000,romfile=,netdev=net1,mac=02:00:00:00:00:08",
		"-device", "qemu-xhci", "-device", "usb-tablet", "-device", "i6300esb", "-device", "VGA")
	m.login()
	m.sees("guestinfo disks | cut -d' ' -f1-6", "sda 67108864 boot-disk sata rw disk")
	// These cards get a link seconds after they appear; a guest on a busy machine is ready before.
	m.sees("guestinfo hostname", "named-by-dhcp")
	m.sees("guestinfo nics | cut -d' ' -f2,3,5,6", "02:00:00:00:00:07 10.0.2.15 up e1000e\n02:00:00:00:00:08 10.0.2.15 up e1000")
	m.sees("ls /dev/watchdog", "/dev/watchdog")
	m.sees("grep -h -i tablet /sys/class/input/event*/device/name", "QEMU QEMU USB Tablet")
	m.sees("cat /proc/fb", "0 bochs-drmdrmfb")
	m.sees("ip link add link eth0 name eth0.7 type vlan id 7 && ip link add br0 type bridge && modprobe bonding && test -e /sys/class/net/bond0 && echo made", "made")
}

func seedImage(t *testing.T, label string, files map[string]string) string {
	t.Helper()
	image, err := os.Create(filepath.Join(t.TempDir(), label+".iso"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = image.Close() }()
	var content []iso.File
	for path, text := range files {
		content = append(content, iso.File{Path: path, Data: []byte(text)})
	}
	if err := iso.Write(image, label, content); err != nil {
		t.Fatalf("writing the image with cloud-init's data: %v", err)
	}
	return image.Name()
}

const cloudConfig = `#cloud-config
password: sesame
ssh_authorized_keys: [ssh-ed25519 AAAAC3Nz second]
write_files:
- {path: /etc/made, content: by cloud-init, permissions: "0600"}
runcmd:
- echo shell > /tmp/first
- [sh, -c, "echo words > /tmp/second"]
`

const networkConfig = `version: 2
ethernets:
  eth0:
    match: {macaddress: "02:00:00:00:00:07"}
    addresses: [192.168.55.2/24]
`

func TestTheGuestTakesWhatCloudInitGivesIt(t *testing.T) {
	files := buildGuest(t, guest.Lean)
	seed := seedImage(t, "cidata", map[string]string{
		"meta-data":      "instance-id: i-1\nlocal-hostname: named\npublic-keys: [ssh-ed25519 AAAAC3Nz first]\n",
		"user-data":      cloudConfig,
		"network-config": networkConfig,
	})
	m := start(t, append(firmwareOf(t, files, "kernel"), "-m", "128",
		"-device", "virtio-scsi-pci", "-drive", "if=none,id=seed,media=cdrom,format=raw,readonly=on,file="+seed,
		"-device", "scsi-cd,drive=seed",
		"-netdev", "user,id=net0", "-device", "virtio-net-pci,romfile=,netdev=net0,mac=02:00:00:00:00:07")...)
	if _, err := m.console.Expect(m.ctx, regexp.MustCompile(`drydock guest ready: named uuid=`)); err != nil {
		t.Fatal(err)
	}
	if err := m.console.LoginAs(m.ctx, "guest", "sesame"); err != nil {
		t.Fatalf("logging in with the password from cloud-init: %v", err)
	}
	m.sees("whoami; hostname", "guest\nnamed")
	m.sees("cat .ssh/authorized_keys", "ssh-ed25519 AAAAC3Nz first\nssh-ed25519 AAAAC3Nz second")
	m.sees("guestinfo nics | cut -d' ' -f1-3", "eth0 02:00:00:00:00:07 192.168.55.2")
	m.sees("guestinfo disks | cut -d' ' -f4-6", "scsi ro cdrom")
	m.sees("stat -c %a /etc/made", "600")
	m.sees("cat /tmp/first /tmp/second", "shell\nwords")
}

func TestTheGuestRunsAScriptOfAConfigDriveOncePerInstance(t *testing.T) {
	files := buildGuest(t, guest.Lean)
	seed := seedImage(t, "config-2", map[string]string{
		"openstack/latest/meta_data.json": `{"instance_id": "i-1", "hostname": "drive", "public_keys": {"a": "ssh-ed25519 AAAAC3Nz a"}}`,
		"openstack/latest/user_data":      "#!/bin/bash\necho ran >> /tmp/ran\nhostname > /tmp/name\n",
	})
	// The disk must not be a snapshot: the guest's notes must outlive the boot.
	disk := filepath.Join(t.TempDir(), "guest.qcow2")
	copyFile(t, files.Disk, disk)
	args := []string{
		"-m", "128",
		"-drive", "if=none,id=boot,file=" + disk, "-device", "virtio-blk-pci,drive=boot",
		"-drive", "if=none,id=seed,format=raw,readonly=on,file=" + seed, "-device", "virtio-blk-pci,drive=seed",
	}
	m := start(t, args...)
	m.login()
	m.sees("cat /tmp/ran /tmp/name", "ran\ndrive")
	if err := m.console.Send("reboot\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.console.Expect(m.ctx, regexp.MustCompile("guest: rebooting\n")); err != nil {
		t.Error(err)
	}
	m.ends() // because of -no-reboot

	m = start(t, args...)
	m.login()
	m.sees("hostname", "drive")
	m.sees("cat /run/user-script", "ran before on this instance")
	m.sees("test -e /tmp/ran || echo did not run", "did not run")
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The port is outside the kernel's ephemeral range, so that it is still free when QEMU listens there.
func freePort(t *testing.T) string {
	t.Helper()
	const first, count = 12000, 20000
	var problem error
	for range 100 {
		port := strconv.Itoa(first + rand.N(count))
		var listener net.Listener
		if listener, problem = net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); problem == nil {
			_ = listener.Close()
			return port
		}
	}
	t.Fatalf("finding a free port: %v", problem)
	return ""
}

func TestTheGuestServesHotplugsAndPanics(t *testing.T) {
	files := buildGuest(t, guest.Lean)
	echo, web, shell := freePort(t), freePort(t), freePort(t)
	agent := filepath.Join(t.TempDir(), "agent")
	m := start(t, append(firmwareOf(t, files, "kernel"), "-m", "128",
		"-netdev", fmt.Sprintf("user,id=net0,hostfwd=tcp:127.0.0.1:%s-:7777,hostfwd=tcp:127.0.0.1:%s-:80,hostfwd=tcp:127.0.0.1:%s-:22", echo, web, shell),
		"-device", "virtio-net-pci,romfile=,netdev=net0", "-netdev", "user,id=net1",
		"-device", "pcie-root-port,id=port1,slot=1", "-device", "pcie-root-port,id=port2,slot=2",
		"-device", "virtio-serial-pci,id=serial", "-chardev", "socket,id=agent,server=on,wait=off,path="+agent,
		"-chardev", "socket,id=again,server=on,wait=off,path="+agent+"-again",
		"-device", "virtserialport,id=port,bus=serial.0,chardev=agent,name=org.qemu.guest_agent.0",
		"-device", "pvpanic-pci", "-blockdev", "null-co,node-name=nothing,size=1048576,read-zeroes=on")...)
	m.login()
	// A slow guest lets users log in before it has its address, or serves anything.
	m.sees("guestinfo nics | grep -c ' 10.0.2.15 '", "1")
	m.sees(`for port in 1E61 0050 0016; do grep -q ":$port [0:]* 0A" /proc/net/tcp* && echo $port; done`, "1E61\n0050\n0016")

	t.Run("echo", func(t *testing.T) { checkEcho(t, echo) })
	t.Run("web", func(t *testing.T) { checkWeb(t, web) })
	t.Run("ssh", func(t *testing.T) { checkGreeting(t, shell, "SSH-2.0-dropbear") })
	t.Run("agent", func(t *testing.T) {
		checkAgent(t, agent)
		checkAgentPort(t, m, agent)
	})
	t.Run("disk and NIC are plugged and unplugged", func(t *testing.T) {
		m.monitorRuns("device_add", map[string]any{"driver": "virtio-blk-pci", "id": "disk", "drive": "nothing", "bus": "port1", "serial": "late"})
		m.monitorRuns("device_add", map[string]any{"driver": "virtio-net-pci", "id": "nic", "netdev": "net1", "bus": "port2", "mac": "02:00:00:00:00:08", "romfile": ""})
		m.sees("guestinfo disks | cut -d' ' -f1-4", "vda 1048576 late virtio")
		m.sees("guestinfo nics | grep -c ' 10.0.2.15 '", "2")
		m.monitorRuns("device_del", map[string]any{"id": "disk"})
		m.monitorRuns("device_del", map[string]any{"id": "nic"})
		m.sees("guestinfo disks", "")
		m.sees("guestinfo nics | wc -l", "1")
	})
	if err := m.console.Send("panic\n"); err != nil {
		t.Fatal(err)
	}
	m.ends()
	if !m.happened("GUEST_PANICKED") {
		t.Error("QEMU heard of no panic")
	}
}

func dial(t *testing.T, network, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func checkEcho(t *testing.T, port string) {
	conn := dial(t, "tcp", "127.0.0.1:"+port)
	if _, err := io.WriteString(conn, "are you there?\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := bufio.NewReader(conn).ReadString('\n'); err != nil || answer != "are you there?\n" {
		t.Errorf("got %q, %v", answer, err)
	}
}

func checkWeb(t *testing.T, port string) {
	client := http.Client{Timeout: patience}
	response, err := client.Get("http://127.0.0.1:" + port + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "guest\n" {
		t.Errorf("got %q, %v", body, err)
	}
}

func checkGreeting(t *testing.T, port, want string) {
	conn := dial(t, "tcp", "127.0.0.1:"+port)
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(line, want) {
		t.Errorf("got %q, %v", line, err)
	}
}

func checkAgentPort(t *testing.T, m *machine, socket string) {
	m.monitorRuns("device_del", map[string]any{"id": "port"})
	m.sees("pidof qemu-ga | wc -w", "0")
	m.monitorRuns("device_add", map[string]any{
		"driver": "virtserialport", "id": "port-again", "bus": "serial.0", "chardev": "again", "name": "org.qemu.guest_agent.0",
	})
	m.sees("pidof qemu-ga | wc -w", "1")
	checkAgent(t, socket+"-again")
	// An agent that finds its port taken logs it and ends.
	m.sees("cat /var/log/qemu-ga.log", "")
}

func checkAgent(t *testing.T, socket string) {
	conn := dial(t, "unix", socket)
	if _, err := io.WriteString(conn, `{"execute":"guest-get-osinfo"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(answer, `"id": "drydock-guest"`) {
		t.Errorf("got %q, %v", answer, err)
	}
}
