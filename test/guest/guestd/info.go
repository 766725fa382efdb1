package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// topics are the topics of guestinfo, in the order of its output. Each writes one line per fact, without the topic's
// name.
var topics = []struct {
	name  string
	write func(io.Writer)
}{
	{"hostname", func(w io.Writer) { line(w, readText("/proc/sys/kernel/hostname")) }},
	{"uuid", func(w io.Writer) { line(w, systemUUID()) }},
	{"serial", func(w io.Writer) { line(w, readText("/sys/class/dmi/id/product_serial")) }},
	{"machine", writeMachine},
	{"firmware", writeFirmware},
	{"cpus", writeCPUs},
	{"memory", writeMemory},
	{"disks", writeDisks},
	{"nics", writeNICs},
	{"uptime", func(w io.Writer) { line(w, strings.Fields(readText("/proc/uptime") + " ?")[0]) }},
}

// With topics it prints only those, without their names:
//
//	guestinfo            hostname vm1
//	                     disks vda 67108864 ...
//	guestinfo disks      vda 67108864 ...
func guestInfo(_ context.Context, args []string) error {
	for _, arg := range args {
		if !slices.ContainsFunc(topicNames(), func(name string) bool { return name == arg }) {
			return fmt.Errorf("nothing is known of %q; there is %s", arg, strings.Join(topicNames(), ", "))
		}
	}
	for _, topic := range topics {
		var facts bytes.Buffer
		switch {
		case len(args) == 0:
			topic.write(&facts)
			for fact := range strings.Lines(facts.String()) {
				fmt.Print(topic.name + " " + fact)
			}
		case slices.Contains(args, topic.name):
			topic.write(os.Stdout)
		}
	}
	return nil
}

func topicNames() []string {
	var names []string
	for _, topic := range topics {
		names = append(names, topic.name)
	}
	return names
}

func line(w io.Writer, fact string) { _, _ = fmt.Fprintln(w, fact) }

// A missing file is empty.
func readText(name string) string {
	data, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func systemUUID() string {
	return strings.ToLower(readText("/sys/class/dmi/id/product_uuid"))
}

func writeMachine(w io.Writer) {
	const dmi = "/sys/class/dmi/id/"
	line(w, fmt.Sprintf("vendor=%q product=%q version=%q",
		readText(dmi+"sys_vendor"), readText(dmi+"product_name"), readText(dmi+"product_version")))
}

func writeFirmware(w io.Writer) {
	kind := "bios"
	if _, err := os.Stat("/sys/firmware/efi"); err == nil {
		kind = "efi"
	}
	line(w, kind)
}

// writeCPUs prints the number of online processors and their topology.
func writeCPUs(w io.Writer) {
	found, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/topology")
	if err != nil {
		return
	}
	sockets, cores := map[string]bool{}, map[string]bool{}
	for _, topology := range found {
		socket := readText(topology + "/physical_package_id")
		sockets[socket] = true
		cores[socket+" "+readText(topology+"/core_id")] = true
	}
	if len(sockets) == 0 {
		return
	}
	line(w, fmt.Sprintf("%d sockets=%d cores=%d threads=%d",
		len(found), len(sockets), len(cores)/len(sockets), len(found)/len(cores)))
}

// writeMemory prints the kernel's memory in KiB.
func writeMemory(w io.Writer) {
	for text := range strings.Lines(readText("/proc/meminfo")) {
		if fields := strings.Fields(text); len(fields) > 1 && fields[0] == "MemTotal:" {
			line(w, fields[1])
		}
	}
}

// writeDisks prints of each disk: name, bytes, serial, bus, rw or ro, disk or cdrom, PCI address. A dash stands for a
// missing value.
func writeDisks(w io.Writer) {
	for _, disk := range listDisks() {
		line(w, fmt.Sprintf("%s %d %s %s %s %s %s", disk.name, disk.size, orDash(disk.serial),
			disk.bus, disk.access, disk.kind, orDash(disk.pci)))
	}
}

// disk is a whole block device, not a partition.
type disk struct {
	name, serial, bus, kind, access, pci string
	size                                 int64
}

func listDisks() []disk {
	const blocks = "/sys/block/"
	var disks []disk
	entries, err := os.ReadDir(blocks)
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		folder := blocks + entry.Name()
		real, err := filepath.EvalSymlinks(folder)
		if err != nil || strings.Contains(real, "/virtual/") {
			continue
		}
		sectors, err := strconv.ParseInt(readText(folder+"/size"), 10, 64)
		if err != nil {
			continue
		}
		disks = append(disks, disk{
			name:   entry.Name(),
			serial: diskSerial(folder),
			bus:    diskBus(real),
			kind:   diskKind(folder),
			access: diskAccess(folder),
			pci:    pciAddress(real),
			size:   sectors * 512,
		})
	}
	return disks
}

// The serial is virtio's or SCSI's page 0x80, which libata has, too.
func diskSerial(folder string) string {
	const pageHeader = 4
	if serial := readText(folder + "/serial"); serial != "" {
		return serial
	}
	page, err := os.ReadFile(folder + "/device/vpd_pg80")
	if err != nil || len(page) <= pageHeader {
		return ""
	}
	return strings.TrimFunc(string(page[pageHeader:]), func(r rune) bool {
		return unicode.IsSpace(r) || r == 0
	})
}

func diskBus(device string) string {
	switch {
	case strings.Contains(device, "/ata"):
		return "sata"
	case strings.Contains(device, "/usb"):
		return "usb"
	case strings.Contains(device, "/host"):
		return "scsi"
	case strings.Contains(device, "/virtio"):
		return "virtio"
	default:
		return "other"
	}
}

func diskAccess(folder string) string {
	if readText(folder+"/ro") == "1" {
		return "ro"
	}
	return "rw"
}

func diskKind(folder string) string {
	const cdrom = "5"
	if readText(folder+"/device/type") == cdrom {
		return "cdrom"
	}
	return "disk"
}

// pciAddress returns the address of a device's PCI parent, which is the last one on its path.
func pciAddress(device string) string {
	for _, part := range slices.Backward(strings.Split(device, "/")) {
		if strings.Count(part, ":") == 2 && strings.Contains(part, ".") {
			return part
		}
	}
	return ""
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// writeNICs prints of each network card: name, MAC address, IPv4 address, MTU, link
// up or down, driver, PCI address.
func writeNICs(w io.Writer) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return
	}
	for _, card := range interfaces {
		if card.Flags&net.FlagLoopback != 0 {
			continue
		}
		folder := "/sys/class/net/" + card.Name
		link := "down"
		if readText(folder+"/carrier") == "1" {
			link = "up"
		}
		var pci string
		if device, err := filepath.EvalSymlinks(folder + "/device"); err == nil {
			pci = pciAddress(device)
		}
		line(w, fmt.Sprintf("%s %s %s %d %s %s %s", card.Name, card.HardwareAddr,
			orDash(ipv4Of(&card)), card.MTU, link, orDash(driverOf(folder)), orDash(pci)))
	}
}

func driverOf(folder string) string {
	driver, err := filepath.EvalSymlinks(folder + "/device/driver")
	if err != nil {
		return ""
	}
	return filepath.Base(driver)
}
