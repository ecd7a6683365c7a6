/* `decide` of ../decisions.star with agree = False: N ranks; one decision each, which nobody else sees; one collective.
 *
 * The decision is forgotten as soon as it is made, so no two states differ in it. The collective counts arrivals.
 * Left out: the communicator, the buffer, and the synchronize behind the collective. None of them decides anything.
 */
byte launched;

active [N] proctype rank() {
  bool hit;
  if :: hit = true :: hit = false fi;
  if :: hit :: else fi;
  d_step { hit = false; launched++ };
  launched == N
}
