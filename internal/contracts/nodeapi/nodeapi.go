// Package nodeapi names the HTTP interface that virt-handler offers to
// virt-api: routes, port, the header of its errors. Both sides use these names;
// the package holds no server and no client.
//
// It is served with mutual TLS on the virt-handler pod's IP. Streams (console,
// vnc, portforward) are WebSockets with the subprotocol "plain.kubevirt.io",
// which virt-api passes through untouched. Errors are a metav1.Status as JSON
// with the matching HTTP status, so that virt-api hands them on as they are.
package nodeapi

import (
	"net/url"
	"path"
)

// Port is the TCP port that virt-handler listens on in its pod.
const Port = 8186

// StreamProtocol is the WebSocket subprotocol of all KubeVirt streams: binary
// messages that carry bytes and nothing else.
const StreamProtocol = "plain.kubevirt.io"

// Verb is the last part of a route and is the subresource's own name.
type Verb string

// GET, WebSocket.
const (
	Console     Verb = "console"
	VNC         Verb = "vnc"
	PortForward Verb = "portforward"
)

// PreserveSession is true, in the query of a stream, if it is not to be opened while the guest has another of its kind.
// Clients of KubeVirt ask for it.
const PreserveSession = "preserveSession"

// PUT, empty body.
const (
	Pause      Verb = "pause"
	Unpause    Verb = "unpause"
	SoftReboot Verb = "softreboot"
	Reset      Verb = "reset"
)

// Quiesce holds the guest still with PUT, and says with GET what holds it, or has held it last. Release ends that
// with PUT. The answer is a Hold; what is asked for is in the query.
const (
	Quiesce Verb = "quiesce"
	Release Verb = "release"
)

// NotHeld is the reason of the Status that answers Quiesce when the guest could not be held still: an agent that has
// failed, or a virt-launcher that can't. A conflict means that it can't be just now.
const NotHeld = "GuestNotHeld"

// The query of Quiesce and Release.
const (
	// HolderQuery is the holder, TokenQuery the token of what is to be released, if it is to be that one.
	HolderQuery = "holder"
	TokenQuery  = "token"
	// TimeoutQuery is how long the guest is held at most, as a duration.
	TimeoutQuery = "timeout"
	// AgentQuery is true if the guest agent is to do it, and nothing else.
	AgentQuery = "agent"
	// VerifyQuery is true, of a GET, if the guest agent is to say that the file systems are still frozen.
	VerifyQuery = "verify"
)

// GET, JSON answers of kubevirt.io/api/core/v1 types.
const (
	GuestOSInfo    Verb = "guestosinfo"
	UserList       Verb = "userlist"
	FilesystemList Verb = "filesystemlist"
)

// Screenshot is a picture of the screen as PNG, with GET.
const Screenshot Verb = "screenshot"

// MoveCursorQuery is true if the pointer is to be moved before the picture is taken, which wakes a screen saver. It is
// the subresource's own.
const MoveCursorQuery = "moveCursor"

// AwayHeader is set in the answer to a request for a guest that this node does not run, or not yet, or not any more: nothing
// was done.
const AwayHeader = "Drydock-Guest-Away"

// Path is the route of a verb on one VMI. uid must be the VMI's UID: a VMI of
// the same name that came after it is answered with 404. Extra path elements
// follow the verb (portforward/8080/tcp).
func Path(namespace, name, uid string, verb Verb, extra ...string) *url.URL {
	elements := append([]string{"/v1/namespaces", namespace, "virtualmachineinstances", name, string(verb)}, extra...)
	return &url.URL{Path: path.Join(elements...), RawQuery: url.Values{"uid": {uid}}.Encode()}
}
