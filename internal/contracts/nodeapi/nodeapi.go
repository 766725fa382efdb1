// Package nodeapi owns the names of virt-handler's HTTP interface for virt-api: routes, port, query. It must not have a
// server or a client.
//
// It is served with mutual TLS on the virt-handler pod's IP. Streams (console, vnc, portforward) are WebSockets, which
// virt-api passes through unchanged. Errors are a metav1.Status as JSON with the matching HTTP status, so that virt-api
// can forward them unchanged.
package nodeapi

import (
	"net/url"
	"path"
)

// Port is the TCP port on which virt-handler listens in its pod.
const Port = 8186

// StreamProtocol is the WebSocket subprotocol of all KubeVirt streams: binary messages that carry only bytes.
const StreamProtocol = "plain.kubevirt.io"

// Verb is the last element of a route and the subresource's name.
type Verb string

// GET, WebSocket.
const (
	Console     Verb = "console"
	VNC         Verb = "vnc"
	PortForward Verb = "portforward"
)

// PreserveSession is true in the query of a stream that must not be opened while the guest has another of its kind.
// Clients of KubeVirt set it.
const PreserveSession = "preserveSession"

// PUT, empty body.
const (
	Pause      Verb = "pause"
	Unpause    Verb = "unpause"
	SoftReboot Verb = "softreboot"
	Reset      Verb = "reset"
)

// Quiesce holds the guest still with PUT, and returns the current or the last hold with GET. Release ends it with PUT.
// The answer is a Hold.
const (
	Quiesce Verb = "quiesce"
	Release Verb = "release"
)

// NotHeld is the Status reason of a failed Quiesce: the agent has failed, or virt-launcher does not support it. A conflict
// means that the guest can't be held at present.
const NotHeld = "GuestNotHeld"

// The query of Quiesce and Release.
const (
	// HolderQuery is the holder. TokenQuery, if set, is the token of the hold to release.
	HolderQuery = "holder"
	TokenQuery  = "token"
	// TimeoutQuery limits the hold, as a duration.
	TimeoutQuery = "timeout"
	// AgentQuery is true if only the guest agent may hold the guest.
	AgentQuery = "agent"
	// VerifyQuery is true in a GET that asks the guest agent whether the file systems are still frozen.
	VerifyQuery = "verify"
)

// GET, JSON of kubevirt.io/api/core/v1.
const (
	GuestOSInfo    Verb = "guestosinfo"
	UserList       Verb = "userlist"
	FilesystemList Verb = "filesystemlist"
)

// Screenshot returns a picture of the screen as PNG, with GET.
const Screenshot Verb = "screenshot"

// MoveCursorQuery is true if the pointer is moved before the screenshot, which wakes a screen saver. The name is the
// subresource's.
const MoveCursorQuery = "moveCursor"

// AwayHeader is set for a guest that does not run on this node any more: nothing was done, so the request may be repeated.
const AwayHeader = "Drydock-Guest-Away"

// Path returns the route of a verb on one VMI. uid must be the VMI's UID: the answer for a later VMI of the same name
// is 404. Extra path elements follow the verb (portforward/8080/tcp).
func Path(namespace, name, uid string, verb Verb, extra ...string) *url.URL {
	elements := append([]string{"/v1/namespaces", namespace, "virtualmachineinstances", name, string(verb)}, extra...)
	return &url.URL{Path: path.Join(elements...), RawQuery: url.Values{"uid": {uid}}.Encode()}
}
