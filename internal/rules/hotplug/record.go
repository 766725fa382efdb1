package hotplug

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// RecordAnnotation holds the Record on a VMI (decision 110).
const RecordAnnotation = "drydock.dev/attachment-pods"

// Record lists the attachment pods. A volume should come from the last one that has it.
type Record struct {
	Generation int             `json:"generation,omitempty"` // of the youngest pod ever recorded
	Pods       []AttachmentPod `json:"holders,omitempty"`
	Incoming   *Incoming       `json:"incoming,omitempty"`
}

// AttachmentPod is an attachment pod that should exist.
type AttachmentPod struct {
	Name string `json:"name"`
	// With a UID, the pod is never created again, and one with another UID is foreign.
	UID     types.UID `json:"uid,omitempty"`
	Volumes []Volume  `json:"volumes"`
}

// ReadRecord reads the record from a VMI's annotations. Without one it is empty.
func ReadRecord(annotations map[string]string) (Record, error) {
	var r Record
	text, ok := annotations[RecordAnnotation]
	if !ok {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Record{}, fmt.Errorf("reading the annotation %s: %w", RecordAnnotation, err)
	}
	return r, nil
}

// Text returns the annotation's value, "" for none.
func (r Record) Text() string {
	if r.Generation == 0 && len(r.all()) == 0 {
		return ""
	}
	text, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("a record of strings and numbers can't be written: %v", err))
	}
	return string(text)
}

func (r Record) all() []AttachmentPod {
	if r.Incoming == nil {
		return r.Pods
	}
	return slices.Concat(r.Pods, r.Incoming.Pods)
}

// Names reports whether the record names the pod.
func (r Record) Names(pod string) bool {
	return slices.ContainsFunc(r.all(), func(h AttachmentPod) bool { return h.Name == pod })
}

// Has reports whether the record names the pod with this UID.
func (r Record) Has(name string, uid types.UID) bool {
	return slices.ContainsFunc(r.Pods, func(h AttachmentPod) bool { return h.Name == name && h.UID == uid })
}

func (p *planning) foreign(pod *Pod) bool {
	return slices.ContainsFunc(p.record.all(), func(h AttachmentPod) bool {
		return h.Name == pod.Name && h.UID != "" && h.UID != pod.UID
	})
}

// recordUIDs records the UIDs of the running pods. virt-controller created them, since only it may set their labels.
func (p *planning) recordUIDs(list []AttachmentPod) {
	for i := range list {
		h := &list[i]
		pod := p.pod(h.Name)
		if h.UID != "" || pod == nil || !pod.Alive() {
			continue
		}
		unfilled := slices.ContainsFunc(p.Destinations, func(d Destination) bool { return d.Unfilled && contains(h.Volumes, d.To) })
		if !unfilled && !p.withheldAtTarget(h) {
			h.UID = pod.UID
		}
	}
}

func (p *planning) add(volumes []Volume) {
	if len(volumes) > 0 {
		p.record.Pods = append(p.record.Pods, p.named(volumes))
	}
}

// named looks at existing pods and entries, too: somebody may have removed the annotation.
func (p *planning) named(volumes []Volume) AttachmentPod {
	for i := range p.Pods {
		p.record.Generation = max(p.record.Generation, generation(p.Prefix, p.Pods[i].Name))
	}
	for i := range p.entries {
		p.record.Generation = max(p.record.Generation, generation(p.Prefix, p.entries[i].PodName))
	}
	p.record.Generation++
	return AttachmentPod{Name: p.Prefix + "-" + strconv.Itoa(p.record.Generation), Volumes: volumes}
}

func generation(prefix, name string) int {
	number, ok := strings.CutPrefix(name, prefix+"-")
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0
	}
	return n
}
