# SPDX-License-Identifier: Apache-2.0
"""A Django site with three leaks: django_shop:application."""
import functools
import itertools

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.dispatch import Signal
from django.http import HttpResponse
from django.urls import path

RECENT = {}
order_paid = Signal()
numbers = itertools.count()


class Recent:
    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        RECENT["%d %s" % (next(numbers), request.path)] = dict(request.headers)  # fills RECENT
        return self.get_response(request)


class Prices:
    def __init__(self, order):
        self.order = order

    @functools.lru_cache(maxsize=None)  # fills Prices.quote
    def quote(self, amount):
        return "%d: %d" % (self.order, amount)


def home(request):
    order = next(numbers)

    def on_paid(**_):
        return order

    order_paid.connect(on_paid, weak=False)  # fills order_paid.receivers
    return HttpResponse(Prices(order).quote(order % 7))


urlpatterns = [path("", home)]
settings.configure(
    SECRET_KEY="x",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=[__name__ + ".Recent", "django.middleware.common.CommonMiddleware"],
)
django.setup()
application = get_wsgi_application()
