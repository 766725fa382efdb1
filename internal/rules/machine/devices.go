package machine

import (
	"fmt"
	"slices"
	"strconv"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

const (
	scsiID     = "scsi0"
	scsiBus    = scsiID + ".0"
	usbID      = "usb0"
	usbBus     = usbID + ".0"
	channelsID = "channels0"
	serialID   = "serial0"
	agentID    = layout.AgentPort
	monitorID  = "qmp0"
	watchdogID = "watchdog0"
	soundID    = "sound0"
	audioID    = "audio0"
)

// AgentPort is the id of the guest agent's virtio-serial port in QEMU's events.
const AgentPort = agentID

// AgentChardev is the label of the port's socket.
const AgentChardev = layout.AgentChardev

// Unless hotplug is disabled, the SCSI controller exists for disks that are plugged later.
func (b *builder) controllers() {
	count := make(map[v1.DiskBus]int)
	for i := range b.spec.Devices.Disks {
		if d := &b.spec.Devices.Disks[i]; !b.hot[d.Name] {
			count[diskBus(d)]++
		}
	}
	if count[v1.DiskBusSCSI] > 0 || !b.spec.Devices.DisableHotplug {
		queues := 1
		if isTrue(b.spec.Devices.BlockMultiQueue) {
			queues = VCPUs(b.topology)
		}
		b.device(onRootBus(b.virtio(Properties{
			"driver": "virtio-scsi-pci", "id": scsiID, "num_queues": queues,
		}), slotSCSI))
	}
	for extra := 1; extra*sataPorts < count[v1.DiskBusSATA] && extra < maxSATAControllers; extra++ {
		controller := onRootBus(Properties{"driver": "ich9-ahci", "id": sataID(extra)}, slotSATA)
		controller["addr"] = fmt.Sprintf("%#x.%d", slotSATA, extra-1)
		controller["multifunction"] = extra == 1
		b.device(controller)
	}
	if count[v1.DiskBusUSB] > 0 || slices.ContainsFunc(b.allInputs(), func(in v1.Input) bool { return in.Bus != v1.InputBusVirtio }) {
		b.device(onRootBus(Properties{
			"driver": "qemu-xhci", "id": usbID, "p2": lastUSBPort, "p3": lastUSBPort,
		}, slotUSB))
	}
}

func (b *builder) channels() {
	b.socket(monitorID, layout.QMPSocket)
	b.option("mon", "chardev="+monitorID+",mode=control")
	b.device(onRootBus(b.virtio(Properties{"driver": "virtio-serial-pci", "id": channelsID}), slotChannels))
	b.socket(AgentChardev, layout.AgentSocket)
	b.device(Properties{
		"driver": "virtserialport", "id": agentID, "bus": channelsID + ".0", "nr": agentNumber,
		"chardev": AgentChardev, "name": "org.qemu.guest_agent.0",
	})
	if b.spec.Devices.DownwardMetrics != nil {
		b.socket("char-"+metricsID, layout.MetricsSocket)
		b.device(Properties{
			"driver": "virtserialport", "id": metricsID, "bus": channelsID + ".0", "nr": metricsNumber,
			"chardev": "char-" + metricsID, "name": metricsPort,
		})
	}
	if !isFalse(b.spec.Devices.AutoattachSerialConsole) {
		var log []string
		if b.in.LogConsole {
			log = append(log, ",logfile=/proc/self/fd/"+strconv.Itoa(layout.ConsoleLogDescriptor))
		}
		b.socket("char-"+serialID, layout.SerialSocket, log...)
		b.device(Properties{"driver": "isa-serial", "id": serialID, "chardev": "char-" + serialID, "index": 0})
	}
}

var videoDrivers = map[string]string{
	"vga":     "VGA",
	v1.VirtIO: "virtio-vga",
	"bochs":   "bochs-display",
	"cirrus":  "cirrus-vga",
	"ramfb":   "ramfb",
}

func (b *builder) display() {
	if isFalse(b.spec.Devices.AutoattachGraphicsDevice) {
		if b.spec.Devices.Video != nil {
			b.refuse("devices.video", "autoattachGraphicsDevice is false: there is no screen")
		}
		return
	}
	vnc := "unix:" + layout.Socket(layout.VNCSocket) + ",share=force-shared"
	if b.spec.Devices.Sound != nil {
		vnc += ",audiodev=" + audioID
	}
	b.option("vnc", vnc)
	kind := "vga"
	if efi(&b.vmi.Spec) != nil {
		kind = "bochs"
	}
	if v := b.spec.Devices.Video; v != nil && v.Type != "" {
		kind = v.Type
	}
	driver, ok := videoDrivers[kind]
	if !ok {
		b.refuse("devices.video.type", "%q is none of vga, virtio, bochs, cirrus, ramfb", kind)
		return
	}
	video := Properties{"driver": driver, "id": "video0"}
	if kind != "ramfb" {
		onRootBus(video, slotVideo)
	}
	b.device(video)
}

// BalloonID is the ID of the memory balloon.
const BalloonID = "balloon0"

// HasBalloon reports whether a guest has a memory balloon.
func HasBalloon(spec *v1.VirtualMachineInstanceSpec) bool {
	return !isFalse(spec.Domain.Devices.AutoattachMemBalloon)
}

func (b *builder) peripherals() {
	if HasBalloon(&b.vmi.Spec) {
		b.device(onRootBus(b.virtio(Properties{
			"driver": "virtio-balloon-pci", "id": BalloonID,
			"free-page-reporting": b.vmi.Annotations[v1.FreePageReportingDisabledAnnotation] != "true",
		}), slotBalloon))
	}
	if b.spec.Devices.Rng != nil {
		b.object(Properties{"qom-type": "rng-builtin", "id": "entropy0"})
		b.device(onRootBus(b.virtio(Properties{
			"driver": "virtio-rng-pci", "id": "rng0", "rng": "entropy0",
		}), slotRNG))
	}
	if w := b.spec.Devices.Watchdog; w != nil {
		if w.Diag288 != nil {
			b.refuse("devices.watchdog.diag288", "this watchdog exists on s390x only; use i6300esb")
		}
		b.device(onRootBus(Properties{"driver": "i6300esb", "id": watchdogID}, slotWatchdog))
	}
	if len(b.spec.Devices.PanicDevices) == 0 {
		b.device(Properties{"driver": "pvpanic", "id": "panic0"})
	}
	for i, d := range b.spec.Devices.PanicDevices {
		id := fmt.Sprintf("panic%d", i)
		switch {
		case d.Model == nil || *d.Model == v1.Isa:
			b.device(Properties{"driver": "pvpanic", "id": id})
		case *d.Model == v1.Pvpanic:
			b.device(onRootBus(Properties{"driver": "pvpanic-pci", "id": id}, slotPanic))
		case *d.Model == v1.Hyperv:
			// This one is a CPU property.
		default:
			b.refuse(fmt.Sprintf("devices.panicDevices[%d].model", i), "%q is none of isa, hyperv, pvpanic", *d.Model)
		}
	}
	b.inputs()
	b.sound()
}

// The node plays nothing: viewers whose VNC client can take sound hear the guest.
func (b *builder) sound() {
	s := b.spec.Devices.Sound
	if s == nil {
		return
	}
	b.option("audiodev", "driver=none,id="+audioID)
	card := Properties{"id": soundID, "bus": rootBus, "addr": addressSound}
	switch s.Model {
	case "", "ich9":
		card["driver"] = "ich9-intel-hda"
		b.device(card)
		b.device(Properties{"driver": "hda-duplex", "id": soundID + "-codec", "bus": soundID + ".0", "cad": 0, "audiodev": audioID})
	case "ac97":
		card["driver"], card["audiodev"] = "AC97", audioID
		b.device(card)
	default:
		b.refuse("devices.sound.model", "%q is none of ich9, ac97", s.Model)
	}
}

func (b *builder) watchdogAction() string {
	w := b.spec.Devices.Watchdog
	if w == nil {
		return ""
	}
	action := v1.WatchdogActionReset
	if w.I6300ESB != nil && w.I6300ESB.Action != "" {
		action = w.I6300ESB.Action
	}
	switch action {
	case v1.WatchdogActionReset, v1.WatchdogActionShutdown, v1.WatchdogActionPoweroff:
	default:
		b.refuse("devices.watchdog.i6300esb.action", "%q is none of reset, shutdown, poweroff", action)
	}
	return ",watchdog=" + string(action)
}

func (b *builder) allInputs() []v1.Input {
	inputs := b.spec.Devices.Inputs
	if isTrue(b.spec.Devices.AutoattachInputDevice) && len(inputs) == 0 {
		inputs = []v1.Input{{Name: "default-0", Type: v1.InputTypeTablet, Bus: v1.InputBusUSB}}
	}
	return inputs
}

func (b *builder) inputs() {
	inputs := b.allInputs()
	if len(inputs) >= firstUSBDiskPort {
		b.refuse("devices.inputs", "a machine has at most %d inputs", firstUSBDiskPort-1)
		return
	}
	nth := make(map[v1.InputBus]int)
	for i, in := range inputs {
		path := fmt.Sprintf("devices.inputs[%d]", i)
		b.named(path, in.Name)
		if in.Type != v1.InputTypeTablet && in.Type != v1.InputTypeKeyboard {
			b.refuse(path+".type", "%q is none of tablet, keyboard", in.Type)
			continue
		}
		bus := v1.InputBus(or(string(in.Bus), string(v1.InputBusUSB)))
		device := Properties{"id": "input-" + in.Name}
		switch bus {
		case v1.InputBusVirtio:
			device["driver"] = "virtio-" + string(in.Type) + "-pci"
			onRootBus(b.virtio(device), slotInputs)
			device["addr"] = fmt.Sprintf("%#x.%d", slotInputs, nth[bus])
			device["multifunction"] = nth[bus] == 0
		case v1.InputBusUSB:
			device["driver"], device["bus"], device["port"] = "usb-tablet", usbBus, fmt.Sprint(nth[bus]+1)
			if in.Type == v1.InputTypeKeyboard {
				device["driver"] = "usb-kbd"
			}
		default:
			b.refuse(path+".bus", "%q is none of usb, virtio", in.Bus)
			continue
		}
		nth[bus]++
		b.device(device)
	}
}
