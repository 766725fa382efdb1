// Package lenient reads lists and watches of custom resources object by object,
// so that one that can't be read stops no loop.
//
// client-go reads a whole list into Go types, and fails as a whole when one value
// does not fit its type: a time such as "2026-01-01 00:00:00" passes the checks of
// some definitions and is none for Go. The informer of that kind then never
// starts, and with it the loops that wait for it. Whoever may write one object
// could so end virt-controller for the whole cluster.
//
// Here an object that can't be read is as if it did not exist: it is left out of
// a list, a watch tells of it as deleted, and it appears as soon as it can be
// read. Each one is reported. That is safe because the loops believe no cache
// where it matters: the API server itself refuses a second object of that name,
// and a read of the object itself fails with an error that is tried again.
//
// It must not judge an object nor know a kind. See decision 224.
package lenient
