package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/migration"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/machine"
	migrations "drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// planNICs plans changes to the interfaces of a running guest that stays on the node, or prepares them for a
// migration.
func (d *Driver) planNICs(s *snapshot) {
	vmi := s.presence.VMI
	if s.attached == nil || vmi == nil || s.role != vmihandler.Home || s.guest.Halted ||
		s.guest.Migration.UnderWay() || len(s.guest.Jobs) > 0 {
		return
	}
	nics := &s.guest.NICs
	node := nichotplug.Node{
		VMI: vmi, NICs: nics.Present, Gone: nics.Gone, Asked: nics.Asked, Since: nics.Since, Plugged: nics.Plugged, Loose: s.looseNICs(),
		Unsure: d.tidied != s.attached.guest, Now: s.now,
	}
	if migrations.InFlight(vmi) {
		if d.moving.source != nil {
			s.nics = node.Depart()
			s.plugAfter = backoff.Sooner(s.plugAfter, s.nics.After)
		}
		return
	}
	pod := d.presence.Networks()
	d.markLooseNICs(s, &node, pod.Version)
	if node.Settled() {
		d.failures.clear(vmihandler.PlugNICs)
		return
	}
	node.InPod = pod.Attached
	var err error
	if node.Devices, err = d.devices(vmi, s.attached.link.Peer); err != nil {
		d.log.Info("the devices of the launcher pod are not known", "reason", err.Error())
	}
	s.nics = node.Next()
	s.plugAfter = backoff.Sooner(s.plugAfter, s.nics.After)
}

func (d *Driver) plugNICs(ctx context.Context, s *snapshot, vmi *v1.VirtualMachineInstance) error {
	g, step := s.attached.guest, &s.nics
	var errs []error
	for _, name := range step.Unplug {
		errs = append(errs, g.UnplugNIC(ctx, name))
	}
	for _, name := range step.Clear {
		errs = append(errs, g.ClearNIC(ctx, name))
	}
	if step.Tidy {
		err := d.env.Network.Tidy(network.Pod{NetNS: s.attached.link.Peer.NetNS}, step.Keep)
		if errs = append(errs, err); err == nil {
			d.tidied = g
		}
	}
	if len(step.Plug)+len(step.Reconnect) > 0 {
		errs = append(errs, d.connectNICs(ctx, s, vmi))
	}
	d.dropInterfaces(step.Unplug)
	return errors.Join(errs...)
}

func (s *snapshot) looseNICs() map[string]bool {
	list := maps.Clone(s.guest.NICs.Present)
	for _, i := range s.attached.prepared.interfaces {
		delete(list, i.Name)
	}
	return list
}

// markLooseNICs notes the interfaces whose side in the pod a network attacher has removed or replaced. The attacher
// writes the pod when it does so; the links are checked only after such a write.
func (d *Driver) markLooseNICs(s *snapshot, node *nichotplug.Node, version string) {
	var names []string
	for name := range node.NICs {
		if nichotplug.OnMultus(node.VMI, name) && !node.Loose[name] {
			names = append(names, name)
		}
	}
	if len(names) == 0 || version == d.checkedPodVersion {
		return
	}
	loose, err := d.env.Network.Loose(network.Pod{NetNS: s.attached.link.Peer.NetNS}, names)
	if err != nil {
		d.log.Error(err, "cannot see whether the guest's interfaces are connected; it is looked again when its pod changes, or something else does")
		return
	}
	d.checkedPodVersion = version
	d.dropInterfaces(loose)
	for _, name := range loose {
		node.Loose[name] = true
	}
}

// dropInterfaces marks interfaces that are leaving as not connected, so that one that stays after all is connected
// again: the pod may lose its side before the guest releases the NIC.
func (d *Driver) dropInterfaces(names []string) {
	if a := d.attached.Load(); a != nil && len(names) > 0 {
		d.setInterfaces(a, slices.DeleteFunc(slices.Clone(a.prepared.interfaces), func(i network.Interface) bool { return slices.Contains(names, i.Name) }))
	}
}

func (d *Driver) connectNICs(ctx context.Context, s *snapshot, vmi *v1.VirtualMachineInstance) error {
	a := s.attached
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	interfaces, err := d.prepareNetwork(ctx, vmi, true, s.nics.Plug)
	if err != nil {
		return err
	}
	d.setInterfaces(a, interfaces)
	a.guest.NoteConnected(s.nics.Reconnect)
	in := d.input(vmi, d.prepared)
	for _, name := range s.nics.Plug {
		netdev, device, err := machine.BuildNIC(in, name)
		if err != nil {
			return fmt.Errorf("building interface %s: %w", name, err)
		}
		if err := a.guest.PlugNIC(ctx, name, netdev, device); err != nil {
			return err
		}
	}
	return nil
}

// setInterfaces stores a copy of the attached QEMU with other prepared interfaces.
func (d *Driver) setInterfaces(a *attached, interfaces []network.Interface) {
	p := *a.prepared
	p.interfaces = interfaces
	next := *a
	next.prepared = &p
	if d.notified == a {
		d.notified = &next
	}
	d.prepared = &p
	d.attached.Store(&next)
}

// interfaces returns the guest's interfaces for its status. One that is not plugged yet is left out; one that the
// guest has not released is included.
func (s *snapshot) interfaces() []vmihandler.Interface {
	vmi := s.presence.VMI
	var list []vmihandler.Interface
	listed := map[string]bool{}
	for _, i := range s.attached.prepared.interfaces {
		other := !nichotplug.OnPodNetwork(vmi, i.Name)
		if other && !s.guest.NICs.Present[i.Name] {
			continue
		}
		listed[i.Name] = true
		list = append(list, vmihandler.Interface{
			Name: i.Name, MAC: i.MAC, PodInterface: i.PodInterface, IPs: i.IPs, Queues: i.Queues,
			Multus: other, Stays: i.Stays,
		})
	}
	for _, was := range vmi.Status.Interfaces {
		if !listed[was.Name] && s.guest.NICs.Present[was.Name] && nichotplug.InGuest(vmi, was.Name) {
			list = append(list, vmihandler.Interface{
				Name: was.Name, MAC: was.MAC, PodInterface: was.PodInterfaceName, Queues: int(was.QueueCount),
				Link: v1.InterfaceState(was.LinkState), Multus: true,
			})
		}
	}
	return list
}

// checkNICsForMigration reports whether the migration may go on: the guest has released the node's devices, and the
// VMI's status shows the remaining interfaces, with which the target starts QEMU. It refuses the migration if the
// guest does not release one.
func (s *snapshot) checkNICsForMigration(vmi *v1.VirtualMachineInstance, source *migration.Source) (settled bool) {
	leaving := nichotplug.Leaving(vmi, s.guest.NICs.Present)
	if len(leaving) > 0 && source != nil {
		source.Refuse(fmt.Sprintf("the guest has not released interfaces that are to be unplugged (%s): it can be migrated when it has, or was restarted",
			strings.Join(leaving, ", ")))
	}
	if len(s.nics.Kept) > 0 && source != nil {
		source.Refuse(fmt.Sprintf("the guest has not released devices of its node, which it can't take along (%s): its system may lack PCI hotplug, or use them",
			strings.Join(s.nics.Kept, ", ")))
	}
	devices := nichotplug.DevicesOf(vmi, s.guest.NICs.Present)
	return len(leaving)+len(devices) == 0 && nichotplug.Reported(vmi, s.guest.NICs.Present)
}
