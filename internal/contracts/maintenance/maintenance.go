// Package maintenance owns the bodies' JSON of the subresource virtualmachines/<name>/maintenance. It must not decide
// anything.
package maintenance

// Request is the body of a POST. The zero value requests all disks, writable.
type Request struct {
	// Image is empty for the installation's libguestfs-tools.
	Image           string `json:"image,omitempty"`
	ImagePullPolicy string `json:"imagePullPolicy,omitempty"`
	// Both are empty for the image's defaults.
	Command []string `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	// Interactive gives the container a terminal for an attached user.
	Interactive bool `json:"interactive,omitempty"`
	ReadOnly    bool `json:"readOnly,omitempty"`
	// Disks are volumes of the VM, empty for all that are on claims.
	Disks []string `json:"disks,omitempty"`
	// BackendStorage requests the claim of the VM's UEFI variables and TPM, too.
	BackendStorage bool `json:"backendStorage,omitempty"`
	// KVM requests /dev/kvm.
	KVM bool `json:"kvm,omitempty"`
	// UID and FSGroup replace QEMU's user.
	UID     *int64 `json:"uid,omitempty"`
	FSGroup *int64 `json:"fsGroup,omitempty"`
	// DeadlineSeconds is how long the pod may run, 0 for no limit.
	DeadlineSeconds int64     `json:"deadlineSeconds,omitempty"`
	Resources       Resources `json:"resources,omitzero"`
	// DryRun is empty or "All", as in every request.
	DryRun []string `json:"dryRun,omitempty"`
}

// Resources are quantities by the resource's name.
type Resources struct {
	Requests map[string]string `json:"requests,omitempty"`
	Limits   map[string]string `json:"limits,omitempty"`
}

// Pod is one maintenance pod of a VM.
type Pod struct {
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
	// Phase is the pod's. Node is its present or last node.
	Phase string `json:"phase,omitempty"`
	Node  string `json:"node,omitempty"`
	// Since is when the pod was created, in RFC 3339.
	Since    string `json:"since,omitempty"`
	Deleting bool   `json:"deleting,omitempty"`
}

// State is the answer to a GET, and to a POST with Created set.
type State struct {
	// Holder is the pod for which the disks are locked, if any. If the pod is gone, only its name is known.
	Holder *Pod `json:"holder,omitempty"`
	// Queue has the waiting pods in order.
	Queue []Pod `json:"queue,omitempty"`
	// Message is why the VM is not locked for the first waiting pod, or not at all.
	Message string `json:"message,omitempty"`
	// Created is a POST's new pod.
	Created *Pod `json:"created,omitempty"`
}
