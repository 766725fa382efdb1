// Package lenient reads lists and watches of custom resources object by object,
// so that an object that can't be read stops no loop.
//
// client-go reads a whole list into Go types, and fails as a whole when one value
// does not fit its type: a time such as "2026-01-01 00:00:00" passes the checks of
// some definitions, and Go does not parse it. The informer of that kind then never
// starts, and neither do the loops that wait for it. So a user who may write one
// object could stop virt-controller for the whole cluster.
//
// Here an object that can't be read counts as one that does not exist: it is left out of
// a list, a watch reports it as deleted, and it appears as soon as it can be
// read. Each one is logged. That is safe because the loops rely on no cache
// where it matters: the API server itself refuses a second object of that name,
// and a read of the object itself fails with an error that is tried again.
//
// It must not judge an object nor know a kind. See decision 224.
package lenient
