package hotplug_test

import (
	"slices"
	"strconv"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/hotplug"
)

// oneAttachmentPod is a planner with one attachment pod for all wanted volumes. It replaces the pod whenever the set
// changes, and deletes every other pod, at once or when all wanted volumes are Ready.
func oneAttachmentPod(o hotplug.Observed, guarded bool) hotplug.Plan {
	var volumes []hotplug.Volume
	for i := range o.Wanted {
		volumes = append(volumes, o.Wanted[i].Volume)
	}
	record, noted := sharedPodRecord(o, volumes)
	plan := hotplug.Plan{Record: record, Entries: sharedPodEntries(o, record)}
	plan.Changed = noted || !slices.Equal(plan.Entries, o.Entries) || plan.Record.Generation != o.Record.Generation ||
		len(plan.Record.Pods) != len(o.Record.Pods)
	if plan.Changed {
		return plan
	}
	for _, h := range plan.Record.Pods {
		if !slices.ContainsFunc(o.Pods, func(p hotplug.Pod) bool { return p.Name == h.Name }) {
			plan.Create = append(plan.Create, h)
		}
	}
	allReady := !slices.ContainsFunc(plan.Entries, func(e hotplug.Entry) bool {
		return slices.Contains(volumes, e.Volume) && e.Phase != v1.VolumeReady
	})
	for _, p := range o.Pods {
		if !p.Terminating && !plan.Record.Names(p.Name) && (allReady || !guarded) {
			plan.Delete = append(plan.Delete, p)
		}
	}
	return plan
}

// sharedPodRecord returns the record of the only attachment pod of these volumes, and whether its UID is new there.
func sharedPodRecord(o hotplug.Observed, volumes []hotplug.Volume) (record hotplug.Record, noted bool) {
	record = o.Record
	current := slices.IndexFunc(o.Record.Pods, func(h hotplug.AttachmentPod) bool { return slices.Equal(h.Volumes, volumes) })
	switch {
	case current >= 0:
		record.Pods = []hotplug.AttachmentPod{o.Record.Pods[current]}
	case len(volumes) > 0:
		record.Generation++
		name := o.Prefix + "-" + strconv.Itoa(record.Generation)
		record.Pods = []hotplug.AttachmentPod{{Name: name, Volumes: volumes}}
	default:
		record.Pods = nil
	}
	record.Pods = slices.Clone(record.Pods)
	for i := range record.Pods {
		for _, p := range o.Pods {
			if h := &record.Pods[i]; h.UID == "" && p.Name == h.Name && p.Running {
				h.UID, noted = p.UID, true
			}
		}
	}
	return record, noted
}

func sharedPodEntries(o hotplug.Observed, record hotplug.Record) []hotplug.Entry {
	var entries []hotplug.Entry
	for _, w := range o.Wanted {
		at := slices.IndexFunc(o.Entries, func(e hotplug.Entry) bool { return e.Volume == w.Volume })
		e := hotplug.Entry{Volume: w.Volume, Phase: v1.VolumeBound}
		if at >= 0 && o.Entries[at].Phase != v1.HotplugVolumeUnMounted {
			e = o.Entries[at]
		}
		for _, p := range o.Pods {
			if e.Phase == v1.VolumeBound && p.Running && record.Names(p.Name) {
				e.Phase, e.PodName, e.PodUID = v1.HotplugVolumeAttachedToNode, p.Name, p.UID
			}
		}
		entries = append(entries, e)
	}
	for _, e := range o.Entries {
		wanted := slices.ContainsFunc(o.Wanted, func(w hotplug.Wanted) bool { return w.Volume == e.Volume })
		if !wanted && (hotplug.InUse(e.Phase) || e.Phase == v1.HotplugVolumeAttachedToNode) {
			entries = append(entries, e)
		}
	}
	return entries
}
