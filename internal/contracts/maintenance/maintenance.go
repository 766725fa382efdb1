// Package maintenance holds the bodies of the subresource virtualmachines/<name>/maintenance: what a client asks for,
// and what virt-api answers. It owns their JSON and decides nothing.
package maintenance

// Request is the body of a POST. The zero value asks for all disks, for writing, in the installation's own image.
type Request struct {
	// Image is the container's image; empty for the installation's libguestfs-tools.
	Image           string `json:"image,omitempty"`
	ImagePullPolicy string `json:"imagePullPolicy,omitempty"`
	// Command and Args are the container's; both empty for the image's own.
	Command []string `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	// Interactive gives the container a terminal that somebody attaches to.
	Interactive bool `json:"interactive,omitempty"`
	// ReadOnly mounts every disk for reading only.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Disks are the VM's volumes that the pod is to have; none for all that are on claims.
	Disks []string `json:"disks,omitempty"`
	// BackendStorage asks for the claim of the VM's UEFI variables and TPM, too.
	BackendStorage bool `json:"backendStorage,omitempty"`
	// KVM asks for /dev/kvm.
	KVM bool `json:"kvm,omitempty"`
	// UID and FSGroup take the place of QEMU's user.
	UID     *int64 `json:"uid,omitempty"`
	FSGroup *int64 `json:"fsGroup,omitempty"`
	// DeadlineSeconds is how long the pod may run; 0 for as long as it does.
	DeadlineSeconds int64     `json:"deadlineSeconds,omitempty"`
	Resources       Resources `json:"resources,omitzero"`
	// DryRun is as in every request: empty, or "All".
	DryRun []string `json:"dryRun,omitempty"`
}

// Resources are quantities by the resource's name, as a container has them.
type Resources struct {
	Requests map[string]string `json:"requests,omitempty"`
	Limits   map[string]string `json:"limits,omitempty"`
}

// Pod is one maintenance pod of a VM.
type Pod struct {
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
	// Phase is the pod's; Node is where it is or was.
	Phase string `json:"phase,omitempty"`
	Node  string `json:"node,omitempty"`
	// Since is when the pod was created, in RFC 3339.
	Since string `json:"since,omitempty"`
	// Deleting says that the pod's deletion was asked for.
	Deleting bool `json:"deleting,omitempty"`
}

// State is the answer to a GET, and to a POST with Created set.
type State struct {
	// Holder is the pod that the disks are locked for, if there is one. Its pod may be gone: then only the name is known.
	Holder *Pod `json:"holder,omitempty"`
	// Queue are the pods that wait, the next one first.
	Queue []Pod `json:"queue,omitempty"`
	// Message says in words why the VM is not locked for the first that waits, or is not at all.
	Message string `json:"message,omitempty"`
	// Created is the pod that a POST has made.
	Created *Pod `json:"created,omitempty"`
}
